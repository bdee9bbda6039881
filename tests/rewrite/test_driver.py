"""The driver finds what a driver that looks at every node again after every edit finds."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kernelwright.capture import capture
from kernelwright.ir.calls import Ref
from kernelwright.ir.editing import Edit, Editor
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Input, Pointwise
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.problem import load_problem
from kernelwright.rewrite import rewrite
from kernelwright.rewrite.driver import Rule, apply
from kernelwright.rewrite.passes import PASSES
from kernelwright.rewrite.surroundings import Surroundings

_CORPUS = Path(__file__).parents[1] / "capture" / "corpus"
_MODULES = ("dense_block", "transformer", "sums_of_products", "views", "batch_norms", "gru")
"""Sums that move, views that sink and rise, values that are computed twice, buffers that change."""


def _from_the_first(rules: Sequence[Rule], graph: Graph) -> tuple[Graph, list[str]]:
    """Every edit on a graph of which nothing is known, from its first node on."""
    applied: list[str] = []
    while True:
        editor = Editor(graph)
        around = Surroundings(editor)
        for node in graph.nodes:
            found = _first_match(rules, around, node)
            if found is not None:
                break
        else:
            editor.drop_unread()
            return editor.graph(), applied
        rule, new = found
        applied.append(rule.name)
        editor.replace(node, new)
        editor.drop_unread()
        graph = editor.graph()


def _first_match(
    rules: Sequence[Rule], around: Surroundings, node: Node
) -> tuple[Rule, tuple[Node, ...]] | None:
    for rule in rules:
        around.begin(node)
        if (new := rule.match(around, node)) is not None:
            return rule, new
    return None


@pytest.mark.parametrize("name", _MODULES)
def test_a_node_is_tried_again_whenever_something_it_asked_for_changes(name: str) -> None:
    captured = graph = capture(load_problem(_CORPUS / f"{name}.py"))
    expected: list[str] = []
    for rules in PASSES:
        graph, applied = _from_the_first(rules, graph)
        expected += applied
    found = rewrite(captured)
    assert found.graph == graph
    assert [it.rule for it in found.applied] == expected


# --- Names and edits ---------------------------------------------------------------------------


_KIND = TensorType(DType.F32, (Dim.static(4),))


def _step(name: str, source: str, op: str = "exp") -> Node:
    expr = Call(op, (Operand(0, DType.F32),), DType.F32)
    return Node(name=name, kind=Pointwise(expr), type=_KIND, inputs=(source,))


def _graph(*steps: Node, result: str) -> Graph:
    return Graph(
        name="small",
        nodes=(Node(name="x", kind=Input("x"), type=_KIND), *steps),
        returns=Ref(result),
    )


def test_a_fresh_name_is_no_node_until_there_is_one() -> None:
    around = Surroundings(Editor(_graph(_step("y", "x"), result="y")))
    around.begin(_step("y", "x"))
    assert [around.fresh("y"), around.fresh("y")] == ["y_1", "y_2"]
    with pytest.raises(KeyError):
        around.node("y_1")


def test_names_of_a_rule_that_did_not_apply_are_free_again() -> None:
    def asks_and_gives_up(around: Surroundings, node: Node) -> None:
        around.fresh(node.name)

    def splits(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
        if node.name != "y":
            return None
        early = _step(around.fresh("y"), "x", "abs")
        return (early, _step(around.fresh("y"), early.name, "neg"))

    rules = (Rule(name="asks", match=asks_and_gives_up), Rule(name="splits", match=splits))
    found = apply(rules, _graph(_step("y", "x"), result="y")).graph
    assert [node.name for node in found.nodes] == ["x", "y_1", "y_2"]
    assert found.results == ("y_2",)


def test_an_edit_keeps_the_order_and_drops_what_nobody_reads() -> None:
    editor = Editor(_graph(_step("a", "x"), _step("b", "a"), _step("c", "b"), result="c"))
    early, late = _step("a_1", "x", "abs"), _step("b", "a_1", "neg")
    editor.replace(editor.node("b"), (early, late))
    assert "a" in editor
    editor.drop_unread()
    edit = editor.changes()
    assert [node.name for node in editor.graph().nodes] == ["x", "a_1", "b", "c"]
    assert edit.records == {"a", "a_1", "b"} and edit.readers == {"x", "a", "a_1"}
    assert editor.readers("x") == {"a_1"} and "a" not in editor
    assert editor.changes() == Edit(frozenset(), frozenset(), frozenset())
    editor.replace(editor.node("c"), (editor.node("b"),))
    assert editor.graph().results == ("b",) and editor.is_shown("b")
    assert editor.fresh("a", set()) == "a_2"
    editor.replace(editor.node("b"), (editor.node("x"),))
    editor.drop_unread()
    assert editor.fresh("a", {"a_1"}) == "a_2" and editor.fresh("a", set()) == "a_1"
