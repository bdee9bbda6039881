"""Observations that tests of checks begin with."""

from dataclasses import replace

from kernelwright.verify.cases import Case
from kernelwright.verify.observation import Observation, RunFacts, TensorFacts
from kernelwright.verify.tolerance import ErrorMetrics, Oracle


def facts(name: str, fingerprint: str = "a", strides: tuple[int, ...] = (3, 1)) -> TensorFacts:
    return TensorFacts(
        name=name,
        dtype="torch.float32",
        shape=(2, 3),
        strides=strides,
        place="the device",
        fingerprint=fingerprint,
    )


RUN = RunFacts(
    structure="T",
    outputs=(facts("output"),),
    inputs=(facts("input[0]"),),
    changed=(),
    aliases=(),
    seconds=0.1,
)
METRICS = ErrorMetrics(
    name="output",
    dtype="torch.float32",
    oracle=Oracle.FLOAT64,
    note="",
    count=10**6,
    epsilon=2.0**-23,
    rms=1.0,
    candidate_rmse=1e-7,
    reference_rmse=1e-7,
    candidate_worst=1e-6,
    reference_worst=1e-6,
    worst_index=(0, 0),
    candidate_value=1.0,
    oracle_value=1.0,
    mismatches=0,
    mismatch_index=(),
)
GOOD = Observation(
    case=Case(),
    reference=RUN,
    candidate=RUN,
    reference_state=None,
    candidate_state=None,
    comparisons=(METRICS,),
    repeats=None,
    findings=(),
)
WRONG = replace(METRICS, candidate_rmse=1e-3)
