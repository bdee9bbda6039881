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
    """Warpgroups, with 64 rows each: 1 to 3."""
    planes: int
    """fp16 numbers whose sum is an element: 2 for float32, three products; 1 for 16-bit ones."""
    mask_bytes: int
    """Bytes of an element of the mask; 0 without one."""
    few: int
    """Rows of all heads that have keys in common, at most, for which there is a kernel of its
    own: a power of two; 0 for none."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block (attention_problem.cuh), one step's mask included."""
        depth = -(-self.depth // 64) * 64
        q = self.planes * self.consumers * 64 * depth * 2
        keys = self.planes * self.block_n * (depth + self.width) * 2
        mask = self.consumers * 64 * -(-self.block_n * self.mask_bytes // 128) * 128
        return 1024 + q + self.stages * keys + mask

    def __str__(self) -> str:
        products = "three fp16 products" if self.planes == 2 else "one 16-bit product"
        stages = "a stage" if self.stages == 1 else f"{self.stages} stages"
        text = (
            f"online softmax; {self.consumers * 64} rows of a head for each block, {self.block_n} "
            f"keys in a step, {stages}; {products} on tensor cores"
        )
        few = f"; {self.few} rows and fewer that have keys in common on CUDA cores"
        return text + few * (self.few > 0)
