"""Whatever is true of one card stands in its file, with its unit and where it comes from."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelwright
from kernelwright.kernels import source
from kernelwright.machine import A100, H100, H200

_PACKAGE = Path(kernelwright.__file__).parent
_CARDS = ("h200", "h100", "a100")
_PLAIN_FLOATS = {0.0, 0.5, 1.0, 1e6}
"""Nothing, a root, everything, and microseconds or megabytes in a message."""
_MOST = 1024
"""Above this an integer is bytes, registers or elements, and so a limit or a threshold."""
_LAYOUTS = {
    *("SHARED_BYTES_OF_BARRIERS", "OUTSIDE_STAGES", "RAW_BOXES"),
    *("PATCHES", "COUNTED", "COUNTED_CHANNELS", "PATCH_COST", "_MOST_REACH"),
}
"""Shared memory that a kernel of ours lays out, and what its launcher can count, on any card."""

_MEANINGS = {"_ABSORBING", "FAR", "_GREATEST"}
"""What programs write for infinities."""
_ALLOCATOR = {"_LEAST_SAVED"}
"""What PyTorch's allocator does on any card."""
_UNMEASURED = {"_LEAST_FLOPS"}
"""Thresholds that the rules of one pass cannot ask a card for yet."""


def _numbers(tree: ast.AST) -> Iterator[tuple[ast.AST, int | float]]:
    """The number literals, and products and powers of integers."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                yield node, value
            case ast.BinOp(left=ast.Constant(), op=ast.Mult() | ast.Pow() | ast.LShift()) if (
                isinstance(node.right, ast.Constant)
            ):
                yield node, eval(ast.unparse(node))


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _without_layouts(tree: ast.Module) -> ast.Module:
    def is_layout(node: ast.stmt) -> bool:
        names = _LAYOUTS | _MEANINGS | _ALLOCATOR | _UNMEASURED
        return isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) in names

    return ast.Module([node for node in tree.body if not is_layout(node)], [])


@pytest.mark.parametrize("room", ["lower", "schedule", "program"])
def test_no_rate_or_limit_of_a_card_stands_where_it_is_decided_how(room: str) -> None:
    found = [
        f"{path.name}:{getattr(node, 'lineno', 0)}: {value}"
        for path in sorted((_PACKAGE / room).rglob("*.py"))
        for node, value in _numbers(_without_layouts(ast.parse(path.read_text())))
        if (value not in _PLAIN_FLOATS if isinstance(value, float) else value > _MOST)
    ]
    assert found == []


@pytest.mark.parametrize(
    "room", ["ir", "capture", "rewrite", "lower", "schedule", "program", "codegen"]
)
def test_the_line_names_no_card(room: str) -> None:
    named = [
        f"{path.name}: {card}"
        for path in sorted((_PACKAGE / room).rglob("*.py"))
        for card in re.findall(r"\b[AH][12]00\b", path.read_text())
    ]
    assert named == []


def _silent(body: list[ast.stmt]) -> Iterator[str]:
    """Assignments that no docstring follows."""
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        is_said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(node, ast.Assign | ast.AnnAssign) and not is_said:
            yield ast.unparse(node).splitlines()[0]


def test_every_number_of_a_card_has_its_unit_and_its_source() -> None:
    folder = _PACKAGE / "machine"
    records = [
        node
        for path in (folder / "records.py", *(folder / "rates").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name != "Machine"
    ]
    assert [name for record in records for name in _silent(record.body)] == []
    for card in _CARDS:
        tree = ast.parse((folder / f"{card}.py").read_text())
        assert list(_silent(tree.body)) == [], card


def test_cards_that_nobody_measured_say_so() -> None:
    assert H200.origin.value == "measured"
    assert {card.origin.value for card in (H100, A100)} == {"modelled"}


def test_the_launcher_cuts_products_as_the_model_does() -> None:
    found = re.search(r"AHEAD_OF_STEP = (\d+);", source("gemm_sm90_cut.cuh"))
    assert found and H200.warpgroups and int(found[1]) == H200.warpgroups.ahead_elements
