"""Tunables of attention on the tensor cores."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Tunables of attention: a block takes rows of one head and goes through the keys."""

    depth: int
    """Columns of q and k at most, a multiple of 16."""
    width: int
    """Columns of v at most, a multiple of 64."""
    block_n: int
    """Keys of a step: 64 or 128."""
    stages: int
    """Steps in shared memory."""
    consumers: int
    """Warpgroups, with 64 rows each: 1 or 2."""
    planes: int
    """fp16 numbers whose sum is an element: 2 for float32, three products; 1 for 16-bit ones."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block (attention_problem.cuh)."""
        depth = -(-self.depth // 64) * 64
        q = self.planes * self.consumers * 64 * depth * 2
        keys = self.planes * self.block_n * (depth + self.width) * 2
        return 1024 + q + self.stages * keys

    def __str__(self) -> str:
        products = "three fp16 products" if self.planes == 2 else "one 16-bit product"
        stages = "a stage" if self.stages == 1 else f"{self.stages} stages"
        return (
            f"online softmax; {self.consumers * 64} rows of a head for each block, {self.block_n} "
            f"keys in a step, {stages}; {products} on tensor cores"
        )
