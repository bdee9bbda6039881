"""The most device memory that is in use at a time, by all processes together."""

import threading
from types import TracebackType
from typing import Self

import torch

_EVERY_SECONDS = 0.002


class PeakMemory:
    """A context that watches the card; nobody else may use it meanwhile.

    What is in use when it begins, this process's own CUDA context among it, is not counted.
    """

    def __init__(self) -> None:
        torch.cuda.init()
        self._stage = "start"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._used_before = _in_use()
        self.by_stage: dict[str, int] = {}
        """Bytes, by what was told to `begin`."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def bytes(self) -> int:
        """The most of all stages."""
        return max(self.by_stage.values(), default=0)

    def begin(self, stage: str) -> None:
        """What is seen from now on belongs to `stage`."""
        self._stage = stage

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            stage, used = self._stage, _in_use() - self._used_before
            self.by_stage[stage] = max(used, self.by_stage.get(stage, 0))


def _in_use() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free
