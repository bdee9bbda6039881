"""Environments of children; to know them imports no PyTorch."""

from collections.abc import Mapping

from kernelwright import env
from kernelwright.toolchain.extension import extension_environment

OF_ALL: Mapping[str, str] = {env.COPY_CONNECTIONS.name: "1"}
"""Half the time to make a context is that for queues: copies between host and card, which no
contestant overlaps, have one."""


def of_trusted(source: str) -> dict[str, str]:
    """That of a child which runs the problem with this text, and no stranger's code."""
    return {**OF_ALL, **extension_environment(source.encode())}
