"""CUDA graphs of a module's calls, where a user asks for them: `Graphed(module)`."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from kernelwright.errors import KernelwrightError
from kernelwright.restoring import kept_buffers, kept_random_state

Capture = Callable[[Callable[[], Any]], tuple[Callable[[], None], Any]]
"""What records a call: gives what runs the call again, and the result that each run writes to."""

_WARM_UP_CALLS = 3
"""Calls before a capture, in which libraries choose algorithms and take their memory."""


class GraphError(KernelwrightError):
    """A call cannot be captured as a CUDA graph."""

    next_step = "Call the module itself, without a graph."


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGraph:
    """What one graph keeps from call to call."""

    arguments: tuple[str, ...]
    """Tensors that it is for: "float32[8, 64]"."""
    input_bytes: int
    """Bytes of the copies of the arguments."""
    result_bytes: int
    """Bytes of the results. What is between them lies in the graph's own pool of memory."""
    replays: int
    """Calls so far."""


class Graphed:
    """Calls of a module as CUDA graphs: one is recorded for each set of shapes and replayed.

        replay = kw.Graphed(model.cuda().eval())
        with torch.no_grad():
            y = replay(x)   # records for this shape; the next calls replay

    It works for any module whose calls can be captured: an emitted ModelNew, an OptimizedModule,
    your own. Arguments are copied in and results are copied out, so that a later call changes
    none of them. The graphs of the last `limit` sets of shapes are kept, each with its memory:
    `kept` lists them, `forget` drops them.

    Values of parameters and buffers are read in each call. When one is replaced, moved or tied,
    or the mode changes, all graphs are recorded again. What is no tensor among the arguments, and
    global settings of torch, are as they were at the recording; other values are another graph.
    Calls of several threads and streams wait for each other.
    """

    def __init__(self, module: nn.Module, limit: int = 8, capture: Capture | None = None) -> None:
        """A wrapper without graphs yet; `capture` records a call (default: with torch.cuda)."""
        if limit < 1:
            raise GraphError(f"a limit of {limit} graphs", next_step="Keep at least one graph.")
        self.module = module
        self.limit = limit
        self._capture = capture or _capture_on_cuda
        self._needs_cuda = capture is None
        self._graphs: OrderedDict[Hashable, _Recorded] = OrderedDict()
        self._state: list[object] = []
        self._lock = threading.Lock()

    @property
    def kept(self) -> tuple[KeptGraph, ...]:
        """What is kept, the graph that was used last at the end."""
        return tuple(graph.facts() for graph in self._graphs.values())

    def forget(self) -> None:
        """Give all graphs and their memory back."""
        with self._lock:
            self._graphs.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module's own call gives. Raises GraphError where it cannot be a graph."""
        if torch.is_grad_enabled():
            step = "Call it under torch.no_grad() or torch.inference_mode()."
            raise GraphError("a graph has no backward", next_step=step)
        leaves, form = tree_flatten((args, kwargs))
        if self._needs_cuda:
            _require_cuda(leaves)
        with self._lock:
            graph = self._graph(leaves, form)
            return graph.run(leaves)

    def _graph(self, leaves: list[Any], form: Any) -> "_Recorded":
        """The graph for these arguments, recorded where there is none."""
        state = _state_of(self.module)
        if not _is_same(state, self._state):
            self._graphs.clear()
            self._state = state
        key = (form, *map(_key, leaves))
        try:
            found = self._graphs.pop(key, None)
        except TypeError as error:
            raise GraphError(f"an argument cannot be compared: {error}") from error
        if found is None:
            while len(self._graphs) >= self.limit:
                self._graphs.popitem(last=False)
            found = _Recorded(self.module, leaves, form, self._capture)
        self._graphs[key] = found
        return found


class _Recorded:
    """One recorded call with the memory that it reads and writes."""

    def __init__(self, module: nn.Module, leaves: list[Any], form: Any, capture: Capture) -> None:
        self._inputs = [_copy(it) if isinstance(it, Tensor) else it for it in leaves]
        self._done: Any = None
        self._replays = 0
        versions = self._versions()

        def call() -> Any:
            args, kwargs = tree_unflatten(self._inputs, form)
            return module(*args, **kwargs)

        # What warming up does to averages and to the random state is undone.
        with kept_random_state(), kept_buffers(module):
            self._replay, self._results = capture(call)
        if versions != self._versions():
            raise GraphError("the module writes to its arguments, of which a graph has copies")

    def run(self, leaves: list[Any]) -> Any:
        """The result for these arguments, as new tensors."""
        on_cuda = any(isinstance(it, Tensor) and it.is_cuda for it in leaves)
        if on_cuda and self._done is not None:
            torch.cuda.current_stream().wait_event(self._done)
        for mine, given in zip(self._inputs, leaves, strict=True):
            if isinstance(mine, Tensor):
                mine.copy_(given)
        self._replay()
        self._replays += 1
        results = tree_map_only(Tensor, torch.clone, self._results)
        if on_cuda:
            self._done = self._done or torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record()
        return results

    def facts(self) -> KeptGraph:
        """What it keeps."""
        tensors = [it for it in self._inputs if isinstance(it, Tensor)]
        results = [it for it in tree_flatten(self._results)[0] if isinstance(it, Tensor)]
        return KeptGraph(
            arguments=tuple(map(_described, tensors)),
            input_bytes=sum(it.nbytes for it in tensors),
            result_bytes=sum(it.nbytes for it in results),
            replays=self._replays,
        )

    def _versions(self) -> list[int]:
        return [it._version for it in self._inputs if isinstance(it, Tensor)]


def _capture_on_cuda(call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """A call recorded by torch.cuda.CUDAGraph, after some that warm up."""
    stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_CALLS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    return graph.replay, results


def _require_cuda(leaves: list[Any]) -> None:
    if not torch.cuda.is_available():
        raise GraphError("a CUDA graph needs a GPU, and torch finds none")
    for value in leaves:
        if isinstance(value, Tensor) and not value.is_cuda:
            step = "Move the arguments to the GPU of the module."
            raise GraphError(f"an argument is on {value.device}", next_step=step)


def _state_of(module: nn.Module) -> list[object]:
    """What a recording depends on: the modules with their modes, and where their tensors lie."""
    found: list[object] = []
    for part in module.modules():
        found += (part, part.training)
        for table in (part._parameters, part._buffers):
            for value in table.values():
                if value is not None:
                    found += (value, value.data_ptr(), value.shape, value.stride(), value.dtype)
    return found


def _is_same(state: list[object], before: list[object]) -> bool:
    """Whether both have the same modules and tensors, and equal facts of them."""
    if len(state) != len(before):
        return False
    pairs = zip(state, before, strict=True)
    return all(
        one is other or (not isinstance(one, Tensor | nn.Module) and one == other)
        for one, other in pairs
    )


def _key(value: Any) -> Hashable:
    """What of an argument is the same in all calls of one graph."""
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype, value.device)
    return (type(value), value)


def _copy(value: Tensor) -> Tensor:
    """A tensor of one's own with the same sizes, values and, where it is dense, strides."""
    return value.detach().clone()


def _described(value: Tensor) -> str:
    sizes = ", ".join(map(str, value.shape))
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
