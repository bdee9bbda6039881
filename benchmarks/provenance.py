"""What produced a recorded number: card, versions, command, date, state of the source."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch


def provenance() -> dict[str, object]:
    """JSON-ready facts about this run; works with and without a GPU."""
    facts: dict[str, object] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", *(_relative(word) for word in sys.argv)]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": _commit(),
        "nvcc": _output(["nvcc", "--version"]).splitlines()[-1:],
    }
    if torch.cuda.is_available():
        facts["card"] = torch.cuda.get_device_name()
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        facts["driver"] = _output(query).splitlines()[:1]
    return facts


def _commit() -> str:
    """KERNELWRIGHT_COMMIT, for files without their history; else what git says."""
    named = os.environ.get("KERNELWRIGHT_COMMIT", "")
    return named or _output(["git", "rev-parse", "--short", "HEAD"]) or "unknown"


def _relative(word: str) -> str:
    """Folders of the machine are no part of how to repeat a run."""
    return Path(word).name if word.startswith("/") else word


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
