"""Rates of rows, windows and running totals."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRates:
    """What rows need to be held on chip, and when that is worth it."""

    least_registers: int
    """Registers of a thread: with fewer, what is known of a row does not fit."""
    held_registers: int
    """Most registers of a thread that hold elements."""
    column_registers: int
    """Registers of a thread of columns besides elements and states."""
    holding_threads: int
    """Most threads of a block that hold a row in registers and compute with it."""
    column_elements: int
    """Most elements of a row that threads along its neighbours keep in registers."""
    block_bytes: int
    """Least bytes of a row that is worth a block of its own."""
    short_threads: int
    """Threads of a multiprocessor that keep it busy where each has some vectors of a short row."""
    short_registers: int
    """Registers of such a thread besides elements."""
    many_rows: int
    """Rows that keep the card busy with one for each warp."""
    few_row_bytes: int
    """Least bytes of a few rows that are worth more than one block each."""
    busy_threads: int
    """Threads of a multiprocessor that short rows are spread over."""
    cached_row_bytes: int
    """Most bytes of a row that one block walks twice beside many others."""
    lone_row_bytes: int
    """Most bytes of a row that a block walks twice where there are few of them."""
    resident_blocks: int
    """Most blocks of a multiprocessor that are worth asking for."""
    exchange_bytes: int
    """Shared memory that is left for the exchange of states, bytes."""
    grid_bytes: int
    """Shared memory that is left where all blocks of the card hold a row, bytes."""
    grid_room: float
    """Rows that those hold at least: one is on its way while totals of another are exchanged."""
    grid_rows: int
    """Such rows that are worth it: nothing is written before the first one is there, and nothing
    read while the last one is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRates:
    """What poolings and convolutions of each channel need, and when walking is worth it."""

    flight_elements: int
    """Most elements of the source that a thread may have in flight."""
    busy_threads: int
    """Threads that a multiprocessor has at least before any walks further."""
    narrow_registers: int
    """Most registers for a plane and a window where a thread has 64 in all."""
    wide_threads: int
    """Threads of a multiprocessor where they need more."""
    other_registers: int
    """Registers of a thread for addresses and places."""
    thread_registers: int
    """Most registers of a thread by the estimate."""
    far_stride: int
    """Stride above which neighbouring threads read too far apart from one another."""
    band_instruction: float
    """Seconds of an instruction of a warp by itself, in bands."""
    band_seconds: float
    """Seconds of a launch in bands before the first product and after the last."""
    band_width: int
    """Columns of a row up to which bands come before walks."""
    band_beside: float
    """Share of what goes on beside the longest part of a band, or of a thread's channels, that
    takes time all the same."""
    channel_seconds: float
    """Seconds of a launch of channels that are last before the first product and after the last."""
    channel_instruction: float
    """Seconds of an instruction of a warp by itself there."""
    channel_row_seconds: float
    """Seconds of a row that one thread waits for there, at least."""
    channel_registers: int
    """Most registers of a thread there, by the estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRates:
    """What running totals need, and when a warp is enough; what loops over elements need."""

    read_seconds: float
    """Seconds from a read to its value while others read."""
    sm_blocks: int
    """Blocks that a multiprocessor is kept busy with."""
    warp_elements: int
    """Elements of a row up to which a warp scans it as fast as a block does."""
    lone_warp_elements: int
    """Elements of it where there are many rows."""
    many_rows: int
    """Rows that keep the card busy with a warp for each."""
    lean_width: int
    """Elements of a vector up to which registers are enough for the configured blocks where one
    input is read; else for two thirds of them."""
