"""How kernels of row programs are made: who has a row, and how it is read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRows:
    """Rows of neighbours in memory that a team of threads holds on chip, copied in ahead."""

    threads: int
    """Threads of a block."""
    team: int
    """Threads of a block that share a row: a warp, or all."""
    cluster: int
    """Blocks that share a row, if all threads of each do."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread holds of each row."""
    stages: int
    """Rows under way at once."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        who = f"{self.threads} threads" if self.team > 32 else "a warp"
        if self.cluster > 1:
            who = f"clusters of {self.cluster} blocks of {who}"
        return (
            f"rows on chip, {who} for each; {self.vectors} vectors of {self.width} elements a "
            f"thread, {self.stages} rows under way"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows(RingRows):
    """A ring of one stage, and a row in registers: the stage takes the next one meanwhile."""

    def __str__(self) -> str:
        return f"{RingRows.__str__(self)}, one more in registers"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRows:
    """Long rows of neighbours in memory, cut in parts that blocks walk one after the other."""

    threads: int
    """Threads of a block."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    unroll: int
    """Vectors of that width that a thread has in flight."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        return (
            f"rows in parts, {self.threads} threads for each; {self.unroll} vectors of "
            f"{self.width} elements a thread in flight"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRows:
    """Rows of neighbours in memory that all blocks of the card hold on chip, chunk by chunk."""

    fold_warps: int
    """Warps of a block that fold."""
    finish_warps: int
    """Warps of a block that write results."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread finishes of a chunk at most."""
    ring: int
    """Bytes of chunks that a block holds."""

    @property
    def threads(self) -> int:
        """Threads of a block: of these warps, of one that copies and of one that exchanges."""
        return 32 * (2 + self.fold_warps + self.finish_warps)

    def __str__(self) -> str:
        return (
            f"rows on chip, all blocks of the card for each; {self.ring // 1024} KB of each in "
            f"chunks of {32 * self.finish_warps * self.vectors} vectors of {self.width} elements, "
            f"{self.fold_warps} warps that fold and {self.finish_warps} that finish"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRows:
    """Rows whose elements lie apart, beside their neighbours': threads stand at different rows."""

    lanes: int
    """Threads of a block at neighbouring rows."""
    split: int
    """Threads of a block that share a row."""
    width: int
    """Neighbouring rows of a thread."""
    vectors: int
    """Places of its rows that a thread has in flight."""
    holds: bool
    """Whether these are all of its places, kept in registers."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        held = "held in registers" if self.holds else "in flight"
        return (
            f"{self.lanes} lanes along {self.width} neighbouring rows each, {self.split} threads "
            f"for a row; {self.vectors} places a thread {held}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPartRows(ColumnRows):
    """Few and long ones of such rows, cut in parts: kernels of states, of totals, of results."""

    joined: bool = False
    """Whether the kernel of results makes the totals: of rows that the L2 cache holds."""

    def __str__(self) -> str:
        end = ", which make the totals" if self.joined else ""
        return f"rows in parts{end}, {ColumnRows.__str__(self)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRows:
    """Rows of neighbours in memory, several for each warp or one for a block, held in registers."""

    threads: int
    """Threads of a block."""
    lanes: int
    """Threads that share a row."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread has of its row."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        who = "a thread" if self.lanes == 1 else f"{self.lanes} threads"
        return (
            f"rows in registers, {who} for each; {self.vectors} vectors of {self.width} elements a "
            "thread"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRows:
    """Rows in one run of memory, or in short ones, a block for each, whose threads walk all runs as
    one."""

    threads: int
    """Threads of a block."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread has in flight."""
    holds: bool
    """Whether these are all of its vectors, kept in registers."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        held = "held in registers" if self.holds else "in flight"
        return (
            f"rows in blocks, {self.threads} threads for each; {self.vectors} vectors of "
            f"{self.width} elements a thread {held}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConfig:
    """Tunables of the row family."""

    multiprocessors: int
    """Multiprocessors of the card."""
    tuned: RingRows | PartRows | GridRows | ColumnRows | ShortRows | BlockRows | None = None
    """The variant for the captured sizes and layouts, beside the one for any."""
    streams: bool = False
    """Whether that loads inputs to leave the caches first: nothing is read twice."""

    def __str__(self) -> str:
        way = str(self.tuned or "rows of any length and layout")
        return f"{way}, which leave the caches first" if self.streams else way
