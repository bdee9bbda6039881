"""Plans cut into native calls: what is in one, and what lies where at which time."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Launch, Reinterpret, TorchCall
from kernelwright.ir.program import Program, Segment, Slot
from kernelwright.ir.program_interpreter import run_program
from kernelwright.machine import H200
from kernelwright.program import arena_bytes, peak_bytes, program_of
from kernelwright.program.peak import bytes_during
from kernelwright.program.segments import Frame
from kernelwright.schedule import Library, plan_graph


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> object:
        return self.function(x, y)


def program(module: nn.Module, *args: Tensor) -> Program:
    return program_of(plan_graph(capture_module(module, args), H200, Library.NEVER).plan)


def programmed(function: Callable[[Tensor, Tensor], object]) -> Program:
    return program(Function(function), torch.rand(6, 8), torch.rand(8, 8))


def only(found: Program) -> Segment:
    (segment,) = found.segments
    return segment


def chain(x: Tensor, y: Tensor) -> Tensor:
    for _ in range(5):
        x = (x @ y).softmax(0)
    return x @ y


def test_a_chain_is_one_call_in_two_slots_and_its_result() -> None:
    found = programmed(chain)
    segment = only(found)
    assert found.parts == (segment,)
    assert len(segment.launches) == 11
    assert len(segment.results) == 1
    assert len(segment.slots) == 2
    assert segment.slots[0].result == segment.results[0]
    assert [dim.text for dim in segment.sizes] == ["s0", "s1"]
    assert arena_bytes(segment) == 6 * 8 * 4


def test_a_launch_that_stands_alone_is_no_segment() -> None:
    (part,) = programmed(lambda x, y: x.exp()).parts
    assert isinstance(part, Launch)


def test_calls_left_to_pytorch_part_segments() -> None:
    found = programmed(lambda x, y: chain(torch.linalg.pinv(chain(x, y)).t(), y))
    first, call, *views, second = found.parts
    assert isinstance(first, Segment) and isinstance(second, Segment)
    assert isinstance(call, TorchCall) and all(isinstance(it, Reinterpret) for it in views)
    assert first.results == call.call.refs


def test_what_others_read_is_a_result_and_its_views_follow() -> None:
    found = programmed(lambda x, y: ((z := (x @ y).softmax(0)).t(), z @ y, z.sum()))
    segment, *views = found.parts
    assert isinstance(segment, Segment)
    assert len(segment.results) == 3
    assert views and all(isinstance(view, Reinterpret) for view in views)


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = torch.cat([(x @ y).softmax(0), x.cumsum(1), y.cumsum(0)])
        result: Tensor = self.norm(z @ y) @ y
        return result


def test_buffers_are_results_and_lend_no_memory() -> None:
    segment = only(program(Norms(), torch.rand(6, 8), torch.rand(8, 8)))
    updated = [name for name in segment.results if name.startswith("new_running")]
    assert len(updated) == 2
    assert not any(slot.result in updated for slot in segment.slots)


@pytest.mark.parametrize("sizes", [(6, 8), (31, 5)])
@pytest.mark.parametrize("module", [Function(chain), Norms()], ids=["chain", "norms"])
def test_a_program_computes_the_module_at_any_sizes(
    module: nn.Module, sizes: tuple[int, int]
) -> None:
    rows, columns = (sizes[0], 8) if isinstance(module, Norms) else sizes
    found = program(module, torch.rand(6, 8), torch.rand(8, 8))
    x, y = torch.rand(rows, columns), torch.rand(columns, columns)
    before = {name: value.clone() for name, value in module.named_buffers()}
    got = run_program(found, module, (x, y))
    after = {name: value.clone() for name, value in module.named_buffers()}
    for name, value in module.named_buffers():
        value.copy_(before[name])
    torch.testing.assert_close(got, module(x, y))
    for name, value in module.named_buffers():
        torch.testing.assert_close(after[name], value)


def test_a_value_whose_memory_was_given_away_is_not_what_it_was() -> None:
    found = programmed(chain)
    segment = only(found)
    values = tuple(name for slot in segment.slots for name in slot.values)
    wrong = replace(segment, slots=(Slot(values=values),))
    x, y = torch.rand(6, 8), torch.rand(8, 8)
    module = Function(chain)
    assert run_program(found, module, (x, y)).isfinite().all()
    assert run_program(replace(found, parts=(wrong,)), module, (x, y)).isnan().any()


def test_a_chain_takes_two_slots_where_a_small_value_lies_between_large_ones() -> None:
    """Had large values chosen first, the small one would meet both neighbours and need a third."""

    def narrow(x: Tensor, y: Tensor) -> Tensor:
        x = (x @ y[:64, :32]).softmax(0)
        x = x @ y[:32, :8]
        x = (x @ y[:8, :16]).softmax(0)
        return (x @ y[:16, :4]).softmax(0)

    found = program(Function(narrow), torch.rand(6, 64), torch.rand(64, 64))
    assert arena_bytes(only(found)) == 2 * (6 * 32 * 4)


def grown(x: Tensor, y: Tensor) -> Tensor:
    """Small values, and a result that is larger than all of them and written last."""
    for _ in range(3):
        x = (x @ y).softmax(0)
    return torch.cat([x @ y, x.cumsum(1), x.cumsum(0)]) @ y


def test_a_large_result_is_not_there_before_its_call() -> None:
    """Had one call written it, it would lie beside all that came before."""
    x, y = torch.rand(1024, 512), torch.rand(512, 512)
    found = program(Function(grown), x, y)
    whole = Frame(found.plan)
    uncut = whole.program(whole.pieces())
    assert len(uncut.parts) == 1
    one = 1024 * 512 * 4
    assert (peak_bytes(found), peak_bytes(uncut)) == (7 * one, 9 * one)
    x, y = torch.rand(31, 5), torch.rand(5, 5)
    torch.testing.assert_close(run_program(found, Function(grown), (x, y)), grown(x, y))


def test_what_saves_little_is_left_whole() -> None:
    found = program(Function(grown), torch.rand(64, 32), torch.rand(32, 32))
    assert len(found.parts) == 1


def test_parts_of_values_and_buffers_take_no_memory_of_their_own() -> None:
    def joined(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([torch.linalg.pinv(x), (x @ y).exp().t()])

    found = programmed(joined)
    assert len(found.parts) > 1
    whole, inverse = (8 + 8) * 6 * 4, 8 * 6 * 4
    assert peak_bytes(found) <= whole + inverse + 6 * 8 * 4
    norms = program(Norms(), torch.rand(600, 8), torch.rand(8, 8))
    during = bytes_during(norms.parts, norms.plan.graph, norms.in_place.keys())
    more = bytes_during(norms.parts, norms.plan.graph, set())
    assert max(more) - max(during) == 2 * 8 * 4 + 8
