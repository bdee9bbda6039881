"""Pieces of Python text: literals, dtypes, paths and views as PyTorch spells them."""

import json
import keyword
from collections.abc import Iterator, Mapping, Sequence

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import (
    Diagonal,
    Expand,
    Permute,
    Reshape,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.types import DType, TensorType

TORCH_DTYPE: dict[DType, str] = {
    DType.F64: "torch.float64",
    DType.F32: "torch.float32",
    DType.F16: "torch.float16",
    DType.BF16: "torch.bfloat16",
    DType.I64: "torch.int64",
    DType.I32: "torch.int32",
    DType.I16: "torch.int16",
    DType.I8: "torch.int8",
    DType.U8: "torch.uint8",
    DType.BOOL: "torch.bool",
    DType.C64: "torch.complex64",
    DType.C128: "torch.complex128",
}


def renamed(line: str, names: Mapping[str, str]) -> str:
    """`line` with whole words replaced; what follows a dot is an attribute and stays."""
    text, word = "", ""
    for char in line + "\n":
        if char.isalnum() or char == "_":
            word += char
            continue
        text += word if text.endswith(".") else names.get(word, word)
        text, word = text + char, ""
    return text[:-1]


def path_expression(path: str) -> str:
    """`layers.0.weight` -> `self.layers[0].weight`."""
    text = "self"
    for part in path.split("."):
        match part:
            case _ if part.isdigit():
                text += f"[{part}]"
            case _ if part.isidentifier() and not keyword.iskeyword(part):
                text += f".{part}"
            case _:
                text = f"getattr({text}, {part!r})"
    return text


def view_text(index_map: ViewMap, kind: TensorType) -> str:
    """What a view adds to the text of its base: `.permute(0, 2, 1)`, `[:, 1:3]`.

    `kind`: the view's own type.
    """
    sizes = ", ".join(dim.text for dim in kind.shape)
    match index_map:
        case Permute((1, 0)):
            return ".t()"
        case Permute(dims):
            return f".permute({', '.join(map(str, dims))})"
        case Reshape():
            return f".reshape({sizes})" if kind.shape else ".reshape(())"
        case Expand():
            return f".expand({sizes})" if kind.shape else ".expand(())"
        case Unsqueeze(dim):
            return f".unsqueeze({dim})"
        case Squeeze(dims):
            return "".join(f".squeeze({dim})" for dim in sorted(dims, reverse=True))
        case Slice(dim, start, stop, step):
            colons = ":, " * dim
            return f"[{colons}{start}:{stop}{f':{step}' if step != 1 else ''}]"
        case Select(dim, index):
            return f".select({dim}, {index})"
        case Diagonal():
            return ".diagonal(dim1=-2, dim2=-1)"
    raise AssertionError(f"{index_map} is a call, not a view")


def constant_path(node: Node) -> str:
    """The buffer that the emitted constructor makes for a constant of `forward`."""
    return f"constant_{node.name}"


def quoted(text: str) -> str:
    """A string literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def number(value: float) -> str:
    """A Python expression for a number, infinite and NaN ones too."""
    text = repr(value)
    return text if text not in ("inf", "-inf", "nan") else f'float("{text}")'


def tuple_text(items: Sequence[str]) -> str:
    """A tuple of these expressions."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def words(text: str) -> set[str]:
    """Identifiers in a text of expressions."""
    spaced = "".join(char if char.isalnum() or char == "_" else " " for char in text)
    return set(spaced.split())


def wrapped(items: Sequence[str]) -> Iterator[str]:
    """A list over as many lines as it takes, indented as an argument."""
    text = f"[{', '.join(items)}],"
    if len(text) <= _WIDTH:
        yield f"    {text}"
        return
    yield "    ["
    line = ""
    for item in items:
        if line and len(line) + len(item) > _WIDTH:
            yield f"        {line.rstrip()}"
            line = ""
        line += f"{item}, "
    yield f"        {line.rstrip()}"
    yield "    ],"


_WIDTH = 80
"""Columns of a list of arguments."""
