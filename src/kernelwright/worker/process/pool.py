"""Jobs over the GPUs of this machine, one at a time on each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LocalPool:
    """The devices to spread jobs over, by CUDA index; [0] also where the emulator runs them."""

    devices: Sequence[int]

    def map(
        self, job: Callable[[int, Item], Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """`job(device, item)` for each item, results as they come.

        A job starts and ends its children itself: they live no longer than the job's thread. An
        exception of a job is raised here, after the running ones have ended.
        """
        free: SimpleQueue[int] = SimpleQueue()
        for device in self.devices:
            free.put(device)

        def on_a_device(item: Item) -> Result:
            device = free.get()
            try:
                return job(device, item)
            finally:
                free.put(device)

        with ThreadPoolExecutor(max_workers=len(self.devices)) as executor:
            futures = {executor.submit(on_a_device, item): item for item in items}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                executor.shutdown(wait=False, cancel_futures=True)
