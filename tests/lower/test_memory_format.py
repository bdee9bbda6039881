"""Which convolutions get channels-last operands, and what reads their results."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Concat, Conv
from kernelwright.ir.plan import Launch, Plan, Reinterpret, TorchCall
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.program.updates import in_place
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule
from kernelwright.schedule.conv_or_library import Convolutions


class After(nn.Module):
    """A convolution and a function of its result."""

    def __init__(
        self, after: Callable[[torch.Tensor], torch.Tensor], channels: int = 16, **options: int
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, 64, 3, **options)
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.convolution(x))


def _plan(module: After, batch: int = 16, side: int = 128) -> Plan:
    channels = module.convolution.in_channels
    with torch.no_grad():
        graph = capture_module(module.eval(), (torch.empty(batch, channels, side, side),))
    return _left(graph)


def _left(graph: Graph) -> Plan:
    """The plan of a graph whose convolutions are all the library's."""
    graph = rewrite(graph).graph
    names = [node.name for node in graph.nodes if isinstance(node.kind, Conv)]
    left = Convolutions(left=dict.fromkeys(names, "as it is"), ours={})
    return schedule(graph, H200, convolutions=left)


def _reads_turned(plan: Plan) -> bool:
    (call,) = (step for step in plan.steps if isinstance(step, TorchCall))
    return call.call.refs[0] != "x"


def _reads_transposed(plan: Plan) -> list[bool]:
    return [
        kernel.family in ("pointwise", "gemm") and kernel.reads_transposed
        for kernel in plan.kernels
    ]


def test_a_step_turns_what_it_reads() -> None:
    plan = _plan(After(torch.relu))
    assert _reads_turned(plan)
    assert _reads_transposed(plan) == [True, True]
    assert plan.kernels[-1].operators == ("bias", "relu")


class Before(nn.Module):
    """A function of the input, and convolutions of its result, as in an inception network."""

    def __init__(
        self, before: Callable[[torch.Tensor], torch.Tensor], convolutions: int = 1
    ) -> None:
        super().__init__()
        self.before = before
        self.convolutions = nn.ModuleList([nn.Conv2d(16, 64, 3) for _ in range(convolutions)])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.before(x)
        return [torch.relu(convolution(x)) for convolution in self.convolutions]


def _launches(module: nn.Module) -> tuple[Plan, list[tuple[str, ...]]]:
    with torch.no_grad():
        graph = capture_module(module, (torch.empty(16, 16, 128, 128),))
    plan = _left(graph)
    return plan, [step.kernel.operators for step in plan.steps if isinstance(step, Launch)]


def test_what_two_convolutions_read_is_turned_once() -> None:
    plan, launches = _launches(Before(lambda x: x, convolutions=2).eval())
    assert launches == [("contiguous",), ("bias", "relu"), ("bias", "relu")]
    first, second = (step for step in plan.steps if isinstance(step, TorchCall))
    assert first.call.refs[0] == second.call.refs[0] != "x"


def test_steps_before_a_convolution_write_what_it_reads() -> None:
    for convolutions in (1, 2):
        plan, launches = _launches(Before(lambda x: (x * 2).tanh(), convolutions).eval())
        assert launches == [("mul", "tanh"), *[("bias", "relu")] * convolutions]
        assert all(_reads_transposed(plan))


def test_steps_that_others_read_as_well_are_copied() -> None:
    class Residual(Before):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            x = self.before(x)
            return [torch.relu(self.convolutions[0](x)), x]

    _, launches = _launches(Residual(torch.tanh).eval())
    assert launches == [("tanh",), ("contiguous",), ("bias", "relu")]


def test_a_norm_before_a_convolution_is_written_once_and_its_factor_is_made_once() -> None:
    module = Before(nn.Sequential(nn.BatchNorm2d(16), nn.ReLU()))
    plan, launches = _launches(module.train())
    assert launches.count(("contiguous",)) == 0
    (rows,) = (kernel for kernel in plan.kernels if kernel.family == "rows")
    assert "rsqrt" in str(rows.expressions)
    (last,) = (kernel for kernel in plan.kernels if kernel.operators == ("batch_norm", "relu"))
    assert last.family in ("pointwise", "gemm") and last.reads_transposed
    assert "rsqrt" not in str(last.expressions)


def test_totals_over_channels_are_of_neighbours() -> None:
    plan = _plan(After(lambda y: torch.min(y, dim=1, keepdim=True)[0].tanh()))
    (rows,) = (kernel for kernel in plan.kernels if kernel.family == "rows")
    assert rows.anchor.dims == (3,)
    assert "rows in registers" in str(rows.config)


def test_a_norm_reads_its_operand_twice_and_writes_once() -> None:
    plan = _plan(After(lambda y: nn.functional.instance_norm(y) * 2))
    (rows,) = (kernel for kernel in plan.kernels if kernel.family == "rows")
    # Along all places at once: nothing of the whole's size.
    assert rows.anchor.dims == (1, 2)
    assert all(kind.numel_hint < 16 * 64 * 126 * 126 / 100 for kind in rows.outputs)
    assert _reads_transposed(plan) == [True, False, True]
    # The factor is computed for each row.
    assert "rsqrt" in str(rows.expressions[-1])
    assert "rsqrt" not in str(plan.kernels[-1].expressions)


def test_totals_along_places_that_lie_apart_are_made_one_after_the_other() -> None:
    plan = _plan(After(lambda y: y.sum((0, 3))))
    rows = [kernel.anchor.dims for kernel in plan.kernels if kernel.family == "rows"]
    assert rows == [(2,), (0,)]


class Trained(nn.Module):
    """A convolution and a batch norm in training mode, between other steps."""

    def __init__(self, after: nn.Module) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 64, 3)
        self.norm = nn.BatchNorm2d(64)
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.norm(self.convolution(x)))


def test_a_norm_in_training_is_one_launch_with_its_running_statistics() -> None:
    plan, _ = _launches(Trained(nn.ReLU()).train())
    (rows,) = (kernel for kernel in plan.kernels if kernel.family == "rows")
    assert rows.anchor.dims == (0, 1, 2)
    # What the step takes, and both statistics, which are written where the buffers are.
    assert [kind.numel_hint for kind in rows.outputs].count(64) >= 3
    launches = [step.kernel for step in plan.steps if isinstance(step, Launch)]
    assert sum(kernel.outputs[0].numel_hint == 64 for kernel in launches) == 1
    assert len(in_place(plan)) == 3


def test_a_softmax_after_a_norm_reads_what_the_norm_reads() -> None:
    after = nn.Sequential(nn.Softmax(2), nn.Conv2d(64, 16, 3))
    plan, launches = _launches(Trained(after).train())
    moments, softmax = (kernel for kernel in plan.kernels if kernel.family == "rows")
    assert all(kind.numel_hint == 64 for kind in moments.outputs)
    assert [kind.numel_hint for kind in softmax.outputs] == [16 * 64 * 126 * 126]
    assert ("batch_norm",) not in launches


def test_a_softmax_over_channels_is_computed_where_they_are_neighbours() -> None:
    plan = _plan(After(lambda y: torch.softmax(y, dim=1) + 1))
    (rows,) = (kernel for kernel in plan.kernels if kernel.family == "rows")
    assert rows.anchor.dims == (3,)
    assert rows.outputs[0].numel_hint == 16 * 64 * 126 * 126
    assert plan.kernels[-1].operators == ("add",) and _reads_transposed(plan)[-1]


def test_a_norm_along_the_width_has_whole_rows() -> None:
    plan = _plan(After(lambda y: nn.functional.layer_norm(y, (126,)) + 1))
    (rows,) = (kernel for kernel in plan.kernels if kernel.family == "rows")
    assert rows.anchor.dims == (2,)
    assert "held in registers" in str(rows.config)
    assert plan.kernels[-1].operators == ("add",)


class Decoder(nn.Module):
    """What a U-Net does on its way up: wider maps beside those from its way down, normed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(16, 64, 3, padding=1)
        self.up = nn.ConvTranspose2d(64, 128, 2, stride=2)
        self.convolution = nn.Conv2d(192, 64, 3, padding=1)
        self.norm = nn.BatchNorm2d(64)
        self.last = nn.Conv2d(64, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down = torch.softmax(self.down(x), 3)
        up = self.up(nn.functional.max_pool2d(down, 2))
        y = self.convolution(torch.cat((up, down), 1))
        return torch.relu(self.last(torch.softmax(self.norm(y), 3)))


def test_what_convolutions_gave_is_put_side_by_side_where_it_lies() -> None:
    plan, launches = _launches(Decoder().train())
    (joined,) = (node for node in plan.graph.nodes if isinstance(node.kind, Concat))
    assert joined.kind.dim == 3
    # The input alone is copied to another order.
    assert launches.count(("contiguous",)) == 1
    assert ("bias",) in launches
    parts = [plan.graph[name].tensor for name in joined.inputs]
    assert [[size.hint for size in it.shape] for it in parts] == [
        [16, 128, 128, 128],
        [16, 128, 128, 64],
    ]
    assert not any(it.is_transposed for it in parts)


def test_a_plan_on_channels_last_says_what_the_module_does() -> None:
    plan, _ = _launches(Decoder().train())
    ours, eager = Decoder().double().train(), Decoder().double().train()
    eager.load_state_dict(ours.state_dict())
    x = torch.rand(3, 16, 12, 20, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        got = run_plan(plan, ours.float(), (x.float(),)).double()
        torch.testing.assert_close(got, eager(x), rtol=0, atol=1e-6)
    for name, value in eager.named_buffers():
        got = ours.get_buffer(name).to(value.dtype)
        torch.testing.assert_close(got, value, rtol=0, atol=1e-6, msg=name)


def test_groups_of_a_product_of_steps_begin_at_the_convolution() -> None:
    norm = nn.GroupNorm(4, 64)
    plan = _plan(After(lambda y: norm(y * torch.sigmoid(y))))
    assert ("bias",) not in [kernel.operators for kernel in plan.kernels]


def test_dear_steps_that_a_norm_reads_twice_are_a_kernel() -> None:
    plan = _plan(After(lambda y: nn.functional.instance_norm(y.exp().tanh().sin() * y)))
    dear, first = plan.kernels[1:3]
    assert dear.operators == ("bias", "exp", "tanh", "sin", "mul")
    assert [dim.hint for dim in dear.outputs[0].shape] == [16, 126, 126, 64]
    assert first.family == "rows"
    assert all(kind.numel_hint < 16 * 64 * 126 * 126 / 100 for kind in first.outputs)


def test_groups_of_channels_are_one_dimension_for_the_step() -> None:
    norm = nn.GroupNorm(4, 64)
    plan = _plan(After(norm))
    small = plan.kernels[-2]
    assert small.family in ("pointwise", "gemm")
    assert [dim.hint for dim in small.output.shape] == [16, 4, 16, 1, 1]
    assert plan.kernels[-1].operators == ("bias", "group_norm")


def test_nothing_is_computed_that_nobody_reads() -> None:
    # The norm's factor is a step of its own: what it is made of is no result any more.
    plan = _plan(After(nn.GroupNorm(4, 64)))
    read = set(plan.graph.results)
    for step in reversed(plan.steps):
        match step:
            case Launch():
                assert read.issuperset(step.results)
                read.update(step.inputs)
            case Reinterpret():
                assert step.result in read
                read.add(step.input)
            case TorchCall():
                read.update(step.call.refs)


def test_a_pooling_has_the_channels_as_columns() -> None:
    plan = _plan(After(lambda y: nn.functional.max_pool2d(y, 2).tanh()))
    (window,) = (kernel for kernel in plan.kernels if kernel.family == "pooling")
    assert window.anchor.window.size == (2, 2, 1)
    assert window.output.shape[-1].hint == 64
    assert plan.kernels[-1].operators == ("tanh",)


def test_what_needs_the_usual_order_gets_a_copy() -> None:
    plan = _plan(After(lambda y: torch.cumsum(y, dim=3)))
    assert _reads_transposed(plan)[:2] == [True, True]
    assert plan.kernels[1].operators == ("bias",)


def test_a_pooled_result_is_returned_as_pytorch_has_it() -> None:
    plan = _plan(After(lambda y: nn.functional.max_pool2d(y, 2)))
    last = plan.steps[-1]
    # The kernel that turns the convolution's operand serves here, too.
    assert isinstance(last, Launch) and last.kernel.name == "contiguous"
    assert [dim.hint for dim in last.kernel.outputs[0].shape] == [16, 64, 63, 63]


@pytest.mark.parametrize(
    ("module", "batch", "side"),
    [
        (After(torch.relu, groups=16), 16, 128),
        (After(torch.relu), 1, 16),
        # cuDNN would take TF32 for these, but not for the reference's.
        (After(torch.relu, channels=8), 16, 128),
        # The convolution's own result is what the caller gets.
        (After(lambda y: y, bias=False), 16, 128),
    ],
)
def test_these_stay_as_they_are(module: After, batch: int, side: int) -> None:
    assert not _reads_turned(_plan(module, batch, side))
