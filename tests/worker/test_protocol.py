"""Messages and tensors between processes, also malformed ones."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.worker.process.protocol import (
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    GarbledError,
)
from kernelwright.worker.process.tensors import (
    TensorFileError,
    TensorHeader,
    read_tensor,
    write_tensor,
)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def test_messages_arrive_whole_and_in_order(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(b'{"id": 1}\n{"id": ')
    assert channel.receive(1.0) == {"id": 1}
    with pytest.raises(ChannelTimeoutError):
        channel.receive(0.0)
    other.sendall(b"2}\n")
    assert channel.receive(1.0) == {"id": 2}


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b"\xff\n", b"\n", b"[" * 100000 + b"\n"])
def test_what_is_no_message_is_garbled(pair: tuple[Channel, socket.socket], line: bytes) -> None:
    channel, other = pair
    other.sendall(line)
    with pytest.raises(GarbledError):
        channel.receive(1.0)


def test_the_end_of_the_conversation(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(b'{"id":')
    other.close()
    with pytest.raises(ChannelClosedError):
        channel.receive(1.0)
    with pytest.raises(ChannelClosedError):
        for _ in range(2):
            channel.send({"id": 1})


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(3, 5).T,
        torch.rand(4).to(torch.bfloat16),
        torch.tensor(2.5, dtype=torch.float16),
        torch.tensor([True, False]),
        torch.rand(2, 2, dtype=torch.complex64).conj(),
        torch.empty(0, 3),
        torch.rand(9)[1:],
    ],
    ids=["transposed", "bfloat16", "scalar", "bool", "conjugate", "empty", "misaligned"],
)
def test_tensors_keep_their_bits(tmp_path: Path, tensor: torch.Tensor) -> None:
    header = write_tensor(tmp_path, "t.bin", "output", tensor)
    back = read_tensor(tmp_path, header)
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor.resolve_conj())


@pytest.mark.parametrize(
    "changes",
    [
        {"file": "../t.bin"},
        {"file": "absent.bin"},
        {"dtype": "os.system"},
        {"shape": (3,)},
        {"shape": (-2, -1)},
        {"file": "link.bin"},
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    tensor = torch.rand(2)
    for place in (folder, tmp_path):
        write_tensor(place, "t.bin", "output", tensor)
    (folder / "link.bin").symlink_to(tmp_path / "t.bin")
    fields = {"name": "output", "file": "t.bin", "dtype": "torch.float32", "shape": (2,)}
    read_tensor(folder, TensorHeader(**fields))  # type: ignore[arg-type]
    with pytest.raises(TensorFileError):
        read_tensor(folder, TensorHeader(**{**fields, **changes}))  # type: ignore[arg-type]


def test_a_dtype_that_cannot_travel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TensorFileError, match="cannot be compared"):
        write_tensor(tmp_path, "t.bin", "output", torch.zeros(2).to(torch.float8_e4m3fn))
