"""Programs made functional by hand are what PyTorch makes of them."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from kernelwright.capture import capture_module, exporting


class Twice(nn.Module):
    """A norm called twice, the second time with the statistics of the first call."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.norm(self.norm(x) * 2))


class Shown(nn.Module):
    """Statistics that are read before and after they change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.norm.running_mean * 1
        return self.norm(x), self.norm.running_mean - before


class Returned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.norm(x), self.norm.running_mean


class Counting(nn.Module):
    """A buffer of the user's that a call changes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x.sum()).mul_(2)
        return x * self.count


class Parts(nn.Module):
    """A mask that is filled part by part, rows, columns and single rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x.new_zeros(8, 4)
        mask[:3, 1:-1] = 1.0
        mask[5] = x[0]
        mask[2:, -2:] = 2.0
        mask[:, 3].mul_(3.0)
        return x * mask + mask[1]


class SeenBefore(nn.Module):
    """A view that is read after another part of its tensor has changed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x.new_zeros(8, 4)
        first = mask[0]
        mask[:2] = 1.0
        return x * first


class ChangedOnTheWay(nn.Module):
    """A part that was changed, read as the result of the call that did."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x.new_zeros(8, 4)
        first = mask[0].add_(2.0)
        mask[:, 1:] = 1.0
        return x * first


class Dropped(nn.Module):
    """Dropout in place, outside of training, of a view."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout((x + 1).flatten(1), 0.2, self.training, inplace=True) * 2


class Turned(nn.Module):
    """Dimensions at other places, by all names for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.mT.movedim(1, -1).moveaxis((0, -1), (2, 0))
        return torch.swapdims(x, 0, -1) @ x.movedim((3, 2), (0, 1)).swapaxes(1, 2).mT


IMAGE, ROWS = (2, 4, 6, 5), (8, 4)
CASES = {
    "trained": (Twice(), IMAGE, True),
    "without statistics": (Twice(track_running_stats=False), IMAGE, True),
    "without weights": (Twice(affine=False), IMAGE, True),
    "read": (Shown(), ROWS, True),
    "returned": (Returned(), ROWS, False),
    "in double": (Twice().double(), IMAGE, False),
    "user's buffer": (Counting(), (3,), True),
    "dropout of none": (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)), ROWS, True),
    "parts": (Parts(), ROWS, True),
    "a view seen before": (SeenBefore(), ROWS, False),
    "a part seen as it changes": (ChangedOnTheWay(), ROWS, False),
    "turned": (Turned(), (4, 4, 4, 4), True),
    "dropout in place": (Dropped().eval(), IMAGE, True),
    "dropout": (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)), ROWS, False),
}


@pytest.mark.parametrize("name", CASES)
def test_by_hand_is_as_by_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, sizes, is_plain = CASES[name]
    dtype = next((it.dtype for it in module.parameters()), torch.float32)
    arguments = (torch.rand(sizes, dtype=dtype),)
    asked: list[bool] = []

    def decomposed(program: ExportedProgram) -> ExportedProgram:
        return program.run_decompositions({})

    monkeypatch.setattr(ExportedProgram, "run_decompositions", _noted(asked))
    ours = capture_module(module, arguments)
    assert bool(asked) is not is_plain
    monkeypatch.setattr(exporting, "functional", decomposed)
    assert ours == capture_module(module, arguments)


def _noted(asked: list[bool]) -> Callable[..., ExportedProgram]:
    """`run_decompositions`, which leaves a note that it was asked."""
    real = ExportedProgram.run_decompositions

    def run(program: ExportedProgram, table: dict[object, object]) -> ExportedProgram:
        asked.append(True)
        return real(program, table)

    return run
