"""What Python code sees of CUDA in a session, where there is none."""

from collections.abc import Iterator

import pytest
import torch

from kernelwright.emulator.device import is_cuda, pretended_cuda


@pytest.fixture
def waits() -> Iterator[list[object]]:
    """The pretended device; every synchronisation leaves an entry."""
    seen: list[object] = []
    with pretended_cuda(seen.append):
        yield seen


@pytest.mark.usefixtures("waits")
def test_there_is_one_hopper() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability() == (9, 0)
    assert "H200" in torch.cuda.get_device_name(0)
    assert torch.cuda.get_device_properties("cuda").multi_processor_count == 132


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda:0")])
def test_everything_that_takes_a_device_takes_cuda(device: str | torch.device) -> None:
    tensors = [
        torch.ones(3, device=device),
        torch.tensor([1.0], device=device),
        torch.empty_like(torch.ones(2), device=device),
        torch.ones(2).to(device),
        torch.ones(2).to(device, torch.float16),
        torch.ones(2).to(device=device, non_blocking=True),
        torch.ones(2).new_zeros(4, device=device),
        torch.ones(2).cuda(),
        torch.ones(2).cuda(0, non_blocking=True),
    ]
    assert all(tensor.is_cuda for tensor in tensors)
    assert tensors[4].dtype == torch.float16
    assert all(tensor.device.type == "cpu" for tensor in tensors)


@pytest.mark.usefixtures("waits")
def test_modules_move_nowhere() -> None:
    module = torch.nn.Linear(3, 2)
    assert module.cuda() is module
    assert module.to("cuda") is module
    assert module.to(device=torch.device("cuda:0"), dtype=torch.float64) is module
    assert module.weight.dtype == torch.float64
    assert module.weight.is_cuda
    assert torch.nn.Linear(3, 2, device="cuda").bias.is_cuda


def test_streams_and_events_are_there(waits: list[object]) -> None:
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        assert torch.cuda.current_stream().cuda_stream == 0
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0.0
    torch.cuda.synchronize("cuda")
    assert waits == ["cuda"]


@pytest.mark.usefixtures("waits")
def test_the_seed_is_the_hosts() -> None:
    torch.cuda.manual_seed(5)
    first = torch.rand(4, device="cuda")
    torch.cuda.manual_seed_all(5)
    assert torch.equal(first, torch.rand(4, device="cuda"))
    state = torch.cuda.get_rng_state("cuda:0")
    first = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.rand(4, device="cuda"))


@pytest.mark.usefixtures("waits")
def test_a_tensor_can_be_lent_to_a_stream() -> None:
    torch.ones(4, device="cuda").record_stream(torch.cuda.Stream())


def test_nothing_is_left_of_it() -> None:
    available, to = torch.cuda.is_available, torch.nn.Module.to
    with pretended_cuda(lambda _device=None: None):
        assert torch.ones(1).is_cuda
    assert torch.cuda.is_available is available
    assert torch.nn.Module.to is to
    assert not torch.ones(1).is_cuda


def test_only_cuda_is_cuda() -> None:
    assert is_cuda("cuda:1")
    assert is_cuda(torch.device("cuda"))
    assert not is_cuda("cpu")
    assert not is_cuda("cudaesque")
    assert not is_cuda(0)


@pytest.mark.usefixtures("waits")
def test_the_default_device_can_be_cuda() -> None:
    torch.set_default_device("cuda")
    try:
        assert torch.ones(2).is_cuda
    finally:
        torch.set_default_device(None)
    assert torch.device("cuda").type == "cuda"
