"""Which line of the user's file a traced call comes from."""

import traceback
from pathlib import Path

import torch
from torch import fx

# Where frames are that the user has not written: PyTorch, its generated code, and this package.
_NOT_THEIRS = (
    *(str(Path(torch.__file__).parent), "torch/", "<"),
    str(Path(__file__).parents[1]),
)


def source_of(node: fx.Node, path: Path | None) -> str | None:
    """`file:line` of the innermost frame in the file at `path`, or else outside of PyTorch.

    None where tracing kept no frame.
    """
    return _innermost(_frames(node.meta.get("stack_trace") or ""), path)


def _frames(trace: str) -> list[tuple[str, str]]:
    """File and line of each frame of a formatted traceback, outermost first."""
    found = []
    for text in trace.splitlines():
        head, _, rest = text.strip().partition('", line ')
        if head.startswith('File "') and rest:
            found.append((head.removeprefix('File "'), rest.partition(",")[0]))
    return found


def innermost_line(error: BaseException, path: Path | None) -> str | None:
    """`file:line` of the innermost frame of an exception, chosen as `source_of` chooses."""
    frames = [
        (frame.filename, str(frame.lineno)) for frame in traceback.extract_tb(error.__traceback__)
    ]
    return _innermost(frames, path)


def _innermost(frames: list[tuple[str, str]], path: Path | None) -> str | None:
    if path is not None:
        lines = [line for file, line in frames if file == str(path)]
        return f"{path.name}:{lines[-1]}" if lines else None
    theirs = [
        f"{Path(file).name}:{line}" for file, line in frames if not file.startswith(_NOT_THEIRS)
    ]
    return theirs[-1] if theirs else None


def first_line(error: BaseException) -> str:
    """The class and the first line of the message of an exception."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
