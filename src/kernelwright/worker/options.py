"""What a caller can ask of a judgement."""

from dataclasses import dataclass, field
from enum import Enum

from kernelwright.bench.timing import FULL_TIMING, TimingPlan
from kernelwright.verify.cases import Case, Demands


class Baseline(Enum):
    """What a candidate is timed against; each runs in a process of its own."""

    EAGER = "eager"
    COMPILED = "torch.compile"
    COMPILED_MAX = "torch.compile max-autotune"


class Speed(Enum):
    """Whether to time a candidate that is right."""

    MEASURED = "measured"
    SKIPPED = "skipped"


class Evidence(Enum):
    """Whether to find out what ran, and whether the candidate's own kernels matter."""

    GATHERED = "gathered"
    SKIPPED = "skipped"


class Sanitizers(Enum):
    """Which of compute-sanitizer's tools a candidate runs under as well, at small sizes."""

    OFF = "off"
    MEMCHECK = "memcheck"
    """Where it is installed and the file has kernels of its own: finds what reads outside."""
    ALL = "all"


class Haste(Enum):
    """When processes start that a candidate needs only once it has been right."""

    AS_NEEDED = "as needed"
    """With the second case: in a suite they would be in the way of other problems' ones."""
    WATCHED_FIRST = "watched first"
    """As needed, but for the one whose kernels are watched: with the candidate, which is likely to
    be right. It imports PyTorch by itself, which takes ten seconds where others do so as well."""
    AT_ONCE = "at once"
    """With the first: the cores have nothing else to do."""


class Watch(Enum):
    """What a candidate's kernels run on where there is no GPU."""

    EMULATOR = "emulator"
    NOTHING = "nothing"
    """The candidate has no kernels of its own: plain PyTorch on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds a child may take for one answer."""

    start: float = 180.0
    """Until torch is imported; a cold disk takes a minute."""
    build: float = 600.0
    run: float = 300.0
    hang: float = 10.0
    """Without an answer to "run", and without compiling, at least; or a hundred times what the
    reference's call takes."""
    slow_hang: float = 25.0
    """Seconds without an answer and without compiling, at least, of a file whose kernels run on
    the emulator or whose module is still being made."""
    compile: float = 900.0
    """Preparing a torch.compile baseline."""
    memcheck: float = 30.0
    """The calls under memcheck, where nobody asked for all tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """How thorough and how patient to be."""

    seeds: int = 5
    """Seeds of the problem's own inputs, and as many of zero-mean ones."""
    demands: Demands = field(default_factory=Demands)
    cases: tuple[Case, ...] = ()
    """Run just these cases, to reproduce a check; empty: the whole plan."""
    watch: Watch = Watch.EMULATOR
    order_seeds: int = 2
    """Orders of the threads in a block that the emulator runs the first case under."""
    variant_bytes: int = 4 << 20
    """Largest size of one call on the emulator and at other sizes."""
    variant_flops: int = 1 << 24
    speed: Speed = Speed.MEASURED
    baselines: tuple[Baseline, ...] = (Baseline.EAGER, Baseline.COMPILED)
    timing: TimingPlan = FULL_TIMING
    timeouts: Timeouts = field(default_factory=Timeouts)
    haste: Haste = Haste.AS_NEEDED
    evidence: Evidence = Evidence.GATHERED
    sanitizers: Sanitizers = Sanitizers.MEMCHECK
    processes: int = 512
    """Processes that a candidate may have at a time, compilers among them."""
    device_index: int = 0
    """CUDA device to run on."""
