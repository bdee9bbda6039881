"""What a candidate's CUDA and C++ does beside computing, by tokens of the texts that it carries."""

import ast
from collections.abc import Mapping, Sequence

from kernelwright.emulator.tokens import Token, TokenKind, following, token_before, tokenize
from kernelwright.verify.findings import Findings, Severity, docstrings

_NEVER_CALLED: Mapping[str, str] = {
    "ptrace": "reaches into other processes",
    "process_vm_readv": "reaches into other processes",
    "process_vm_writev": "reaches into other processes",
    "system": "starts a program",
    "popen": "starts a program",
    "fork": "starts a process",
    "vfork": "starts a process",
    "execl": "starts a program",
    "execv": "starts a program",
    "execve": "starts a program",
    "execvp": "starts a program",
    "posix_spawn": "starts a program",
    "connect": "asks the network",
    "getaddrinfo": "asks the network",
    "dlsym": "looks up functions behind the compiler's back",
    "pthread_create": "starts a thread",
}
"""Functions of the C library, as they are called."""

_NEVER_NAMED: Mapping[str, str] = {
    "cudaLimitPersistingL2CacheSize": "keeps data in the cache across the timer's flush",
    "CU_LIMIT_PERSISTING_L2_CACHE_SIZE": "keeps data in the cache across the timer's flush",
    "detach": "leaves a thread behind",
}

_WORTH_A_LOOK: Mapping[str, str] = {
    "cudaStreamCreate": "makes a stream of its own",
    "cudaStreamCreateWithFlags": "makes a stream of its own",
    "cudaStreamCreateWithPriority": "makes a stream of its own",
    "getStreamFromPool": "makes a stream of its own",
    "cudaGraphLaunch": "replays a CUDA graph",
    "cudaStreamBeginCapture": "captures a CUDA graph",
    "cudaAccessPolicyWindow": "says what the cache should keep",
    "dlopen": "loads a library",
    "cudaLaunchHostFunc": "runs code on the host later",
    "cudaStreamAddCallback": "runs code on the host later",
    "getenv": "reads the environment",
    "fopen": "opens files",
    "ifstream": "opens files",
    "ofstream": "opens files",
    "async": "starts a thread",
    "setAllowTF32CuBLAS": "changes the precision of products everywhere",
}

_SIGNS = ("__global__", "#include", "torch::Tensor", "at::Tensor")
"""What tells a text in C++ from any other."""


def look_at_cuda(tree: ast.Module, problem_source: str) -> Findings:
    """Everything of the tables that is in the file's texts in C++."""
    del problem_source
    ignored = docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in ignored and _is_cpp(text):
                yield from _look_at_text(text, node.lineno)


def _is_cpp(text: str) -> bool:
    return any(sign in text for sign in _SIGNS)


def _look_at_text(text: str, first_line: int) -> Findings:
    tokens = tokenize(text)
    for at, token in enumerate(tokens):
        # Escaped line breaks before it would shift the line: texts of kernels hardly have any.
        line = first_line + token.line - 1
        match token.kind:
            case TokenKind.STRING if "/proc/" in token.text:
                yield Severity.NEVER_HONEST, line, f"looks into {token.text}"
            case TokenKind.NAME:
                yield from _look_at_name(token.text, line, called=_is_called(tokens, at))


def _look_at_name(name: str, line: int, *, called: bool) -> Findings:
    if name in _NEVER_NAMED:
        yield Severity.NEVER_HONEST, line, f"`{name}` {_NEVER_NAMED[name]}"
    elif name in _NEVER_CALLED and called:
        yield Severity.NEVER_HONEST, line, f"`{name}` {_NEVER_CALLED[name]}"
    elif name in _WORTH_A_LOOK:
        yield Severity.WORTH_A_LOOK, line, f"`{name}` {_WORTH_A_LOOK[name]}"


def _is_called(tokens: Sequence[Token], at: int) -> bool:
    """Whether the name at `at` is a function's that is called, and no method's."""
    after = following(tokens, at + 1)
    called = after < len(tokens) and tokens[after].is_mark("(")
    return called and not token_before(tokens, at).is_mark(".", "->")
