"""A baseline that is compiled keeps nobody from timing until it launches."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.problem import Problem
from kernelwright.verify.cases import Case
from kernelwright.verify.records import to_plain
from kernelwright.worker.card.lease import Lease
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.process.requests import CaseRequest
from kernelwright.worker.roles import timed
from kernelwright.worker.timer.compiling import alone, sharing_but_for_compilers


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


class Busy(Exception):
    """Somebody else has the card."""


def is_free() -> bool:
    """Whether somebody else could time now."""

    def give_up() -> None:
        raise Busy

    other = Lease(0)
    try:
        other.claim(give_up)
    except Busy:
        return False
    finally:
        other.release()
    return True


def test_the_card_is_free_while_a_graph_is_compiled() -> None:
    seen: list[tuple[str, bool]] = []

    def backend(graph: Any, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        seen.append(("compiles", is_free()))

        def launch(*arguments: torch.Tensor) -> Any:
            seen.append(("launches", is_free()))
            return graph.forward(*arguments)

        return launch

    compiled = torch.compile(lambda x: x + 1, backend=backend)
    with sharing_but_for_compilers(0, Ledger()):
        assert not is_free()
        compiled(torch.zeros(2))
        compiled(torch.zeros(2))
    assert seen == [("compiles", True), ("launches", False), ("launches", False)]
    assert is_free()
    compiled(torch.zeros(3, 3))
    assert seen[3:] == [("compiles", True), ("launches", True)]
    assert is_free()


def test_alone() -> None:
    with alone(0, Ledger()):
        assert not is_free()
    assert is_free()


def test_the_compiler_is_imported_before_the_card_is_shared(
    affine: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []

    def compiled(module: nn.Module, mode: str) -> nn.Module:
        seen.append((type(module).__name__, is_free()))
        return module

    monkeypatch.setattr(timed, "_compile", compiled)
    contestant = timed.Timed.compiled(affine, torch.device("cpu"), "default")
    assert seen == [("Identity", True)]
    contestant.compile(to_plain(CaseRequest(case=Case())))
    assert seen == [("Identity", True), ("Model", False)]
