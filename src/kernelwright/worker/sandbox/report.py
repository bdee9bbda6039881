"""What the verdict says about the isolation of a candidate."""

from kernelwright.verify.verdict import Check, Outcome
from kernelwright.worker.sandbox.confining import Started

ISOLATION = "isolation"
"""Name of the check."""

_MEANING = {
    "limits": "no core files, bounded files, processes and memory",
    "privileges": "no setuid programs",
    "files": "writes only to its own folders",
    "network": "no network",
    "other processes": "no signals to and no look into other processes",
}


def isolation_check(started: Started | None) -> Check:
    """PASSED where every protection was in force; a warning that names those that were not."""
    if started is None:
        return Check(
            name=ISOLATION,
            outcome=Outcome.SKIPPED,
            evidence="the candidate ran in no process of its own",
        )
    missing = [
        f"{_MEANING.get(it.name, it.name)}: not in force ({it.missing})"
        for it in started.protections
        if it.missing
    ]
    held = [_MEANING.get(it.name, it.name) for it in started.protections if not it.missing]
    evidence = f"a process of its own: {', '.join(held)}"
    return Check(
        name=ISOLATION,
        outcome=Outcome.WARNING if missing else Outcome.PASSED,
        evidence="; ".join([*missing, evidence]),
    )
