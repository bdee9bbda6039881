"""What to do next, for every status: one sentence."""

from collections.abc import Mapping

from kernelwright.verify.verdict import Status

NEXT_STEPS: Mapping[Status, str] = {
    Status.VERIFIED_FASTER: "Use it.",
    Status.VERIFIED_NOT_FASTER: "Look at the share of the modelled floor: the rest is what a "
    "faster kernel could win.",
    Status.VERIFIED: "Judge it on an idle GPU to have its speed measured.",
    Status.NOT_DROP_IN_FASTER: "Use it where weights are those of the constructor, or convert "
    "checkpoints; `--demand drop-in` refuses it.",
    Status.NOT_DROP_IN_NOT_FASTER: "Look at the share of the modelled floor: the rest is what a "
    "faster kernel could win.",
    Status.NOT_DROP_IN: "Judge it on an idle GPU to have its speed measured; `--demand drop-in` "
    "refuses it.",
    Status.WRONG_VALUES: "Run the case alone, and look at where the wrong elements are.",
    Status.WRONG_SHAPE_OR_DTYPE: "Return what the reference returns: containers, shapes, dtypes.",
    Status.WRONG_WHERE_NOT_FINITE: "Let NaN and Inf through (`x > 0 ? x : 0` and `fmaxf` do not), "
    "or accept the file by the `--demand` that the verdict names.",
    Status.WRONG_STATE: "Give parameters and buffers the reference's names, and read them in "
    "every call.",
    Status.STATE_NOT_UPDATED: "Update what the reference's call updates, in place.",
    Status.INPUT_CHANGED: "Write to new memory: inputs are the caller's.",
    Status.RESULT_SHARED: "Write the result to new memory: a caller that changes the result would "
    "change the input.",
    Status.RESULT_OVERWRITTEN: "Allocate the result in every call: earlier results belong to the "
    "caller.",
    Status.NOT_DETERMINISTIC: "Look for memory that is read before it is written, and for state "
    "that is kept between calls.",
    Status.BUILD_FAILED: "Correct the line that is named.",
    Status.CRASHED: "Run the case alone; a CUDA error is often an index out of bounds.",
    Status.TIMED_OUT: "Look for a loop or a barrier that not every thread leaves.",
    Status.RACE: "Put a barrier between the two accesses.",
    Status.OUT_OF_BOUNDS: "Compare the index with the size where the kernel reads or writes.",
    Status.MEMORY_ERROR: "Look at the pointer: what it points to, its alignment, and whether that "
    "memory was written.",
    Status.OUT_OF_MEMORY: "Free scratch memory early, or compute in pieces.",
    Status.SIDE_EFFECT: "Put back what was changed, or do not change it.",
    Status.CHEATING: "Do the work in the call, on the current stream, on the inputs given.",
    Status.UNSUPPORTED: "Judge it on a machine that can run it.",
}
