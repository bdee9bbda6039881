"""What to do next, for every status: one sentence."""

from collections.abc import Mapping

from kernelwright.verify.verdict import Status

NEXT_STEPS: Mapping[Status, str] = {
    Status.VERIFIED_FASTER: "Use it.",
    Status.VERIFIED_NOT_FASTER: "Look at the share of the floor: it says how much there is to win.",
    Status.VERIFIED: "Judge it on a GPU to have its speed measured.",
    Status.WRONG_VALUES: "Run the case alone, and look where the wrong elements are.",
    Status.WRONG_SHAPE_OR_DTYPE: "Return what the reference returns: containers, shapes, dtypes.",
    Status.INPUT_CHANGED: "Write to new memory: inputs, and results handed out, are the caller's.",
    Status.NOT_DETERMINISTIC: "Look for memory that is read before it is written, and for state "
    "that is kept between calls.",
    Status.BUILD_FAILED: "Mend the line that is named.",
    Status.CRASHED: "Run the case alone; a CUDA error is often an index out of bounds.",
    Status.TIMED_OUT: "Look for a loop or a barrier that not every thread leaves.",
    Status.RACE: "Put a barrier between the two accesses.",
    Status.OUT_OF_BOUNDS: "Compare the index with the size where the kernel reads or writes.",
    Status.MEMORY_ERROR: "Look at the pointer: what it points to, its alignment, who wrote there.",
    Status.OUT_OF_MEMORY: "Free scratch memory early, or compute in pieces.",
    Status.SIDE_EFFECT: "Put back what was changed, or do not change it.",
    Status.CHEATING: "Do the work in the call, on the current stream, on the inputs given.",
    Status.UNSUPPORTED: "Judge it on a machine that can run it.",
}
