"""Tunables of loops that carry a value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """Tunables of the loop family: a thread has an element and takes all its steps."""

    ahead: int
    """Steps whose operands are read before the first of them is taken."""
    threads: int
    """Threads of a block."""

    def __str__(self) -> str:
        return (
            f"all steps in one launch, each thread has an element; operands of {self.ahead} steps "
            f"at a time, {self.threads} threads"
        )
