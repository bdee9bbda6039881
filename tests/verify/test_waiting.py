"""What is brought to the host."""

import pytest
import torch

from kernelwright.verify.waiting import on_the_host

FLATS = [torch.arange(3), torch.arange(0), torch.arange(5)]


def test_what_is_there_already_stays() -> None:
    assert all(mine is given for mine, given in zip(on_the_host(FLATS), FLATS, strict=True))


@pytest.mark.gpu
def test_several_of_a_device_come_together_and_apart_again() -> None:
    brought = on_the_host([FLATS[0].cuda(), FLATS[1], FLATS[2].cuda(), FLATS[1].cuda()])
    assert [it.tolist() for it in brought] == [[0, 1, 2], [], [0, 1, 2, 3, 4], []]
    assert all(it.device.type == "cpu" for it in brought)
