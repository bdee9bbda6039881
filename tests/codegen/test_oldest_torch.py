"""What a written file takes from torch is there from release 2.1.2 on."""

import ast
from pathlib import Path

import pytest

from kernelwright.codegen import emit
from kernelwright.compiling import compile_problem
from kernelwright.ir.plan import TorchCall
from kernelwright.machine import H200
from kernelwright.problem import load_problem

_EXAMPLES = Path(__file__).parents[2] / "examples"

# Found as text in the Python files and stubs of the wheel of torch 2.1.2; nothing was run with it.
# Add a name only after having found it there.
_NAMES = {
    *("torch.Tensor", "torch.empty", "torch.is_grad_enabled", "torch.no_grad", "torch.rand"),
    *("torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.uint8"),
    *("torch.cuda.get_device_capability", "torch.cuda.current_stream", "nn.Module", "nn.Linear"),
    *("nn.Parameter", "torch.ops.loaded_libraries", "torch.library.Library"),
    "torch.library.fallthrough_kernel",
    "torch._C",  # with getattr: _cuda_getCurrentRawStream
    "torch.compiler",  # with getattr: is_compiling came with 2.3
}
_OPTIONS = {
    *("name", "cpp_sources", "cuda_sources", "functions", "extra_cuda_cflags", "is_python_module"),
    "no_implicit_headers",  # where load_inline takes it, from 2.6 on: the file asks
}
_IMPORTED = {("torch", "nn"), ("torch.utils.cpp_extension", "load_inline")}


@pytest.mark.parametrize("name", ["linear_relu_div", "scalar_mul", "diag_matmul"])
def test_names_of_a_written_file_are_those_of_the_oldest_torch(name: str) -> None:
    compiled = compile_problem(load_problem(_EXAMPLES / f"{name}.py"), H200)
    assert not any(isinstance(step, TorchCall) for step in compiled.plan.steps)
    tree = ast.parse(emit(compiled.problem, compiled.plan, compiled.rewritten.applied).source)
    used = {_dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    ours = {text for text in used if text.split(".")[0] in ("torch", "nn")}
    # Of a.b.c the walk also finds a.b; a namespace of operators is the file's own.
    whole = {text for text in ours if not any(other.startswith(f"{text}.") for other in ours)}
    assert {t for t in whole if not t.startswith("torch.ops.kernelwright_")} <= _NAMES

    assert _options(tree) <= _OPTIONS
    imports = {(node.module, alias.name) for node, alias in _imports(tree)}
    assert {pair for pair in imports if (pair[0] or "").startswith("torch")} <= _IMPORTED


def _dotted(node: ast.AST) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            base = _dotted(value)
            return f"{base}.{name}" if base else ""
    return ""


def _imports(tree: ast.Module) -> list[tuple[ast.ImportFrom, ast.alias]]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [(node, alias) for node in found for alias in node.names]


def _options(tree: ast.Module) -> set[object]:
    """Keys of the dictionary that becomes load_inline's arguments."""
    found: set[object] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name("options")], ast.Dict(keys)):
                found |= {key.value for key in keys if isinstance(key, ast.Constant)}
            case ast.Assign([ast.Subscript(ast.Name("options"), ast.Constant(key))]):
                found.add(key)
    assert "cuda_sources" in found
    return found
