"""What a run was made with: enough to repeat it, and to know whether two runs can be compared."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kernelwright
from kernelwright import env


def provenance(commit: str = "") -> dict[str, Any]:
    """JSON-ready facts about this run; works with and without a GPU.

    `commit` is what to record where the source lies without its history.
    """
    import torch

    cards = _lines(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["kernelwright", *(_relative(word) for word in sys.argv[1:])]),
        "version": kernelwright.__version__,
        "commit": commit or _commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "nvcc": "".join(_lines(["nvcc", "--version"])[-1:]),
        "cards": [line.partition(", ")[0] for line in cards],
        "driver": "".join(cards[:1]).rpartition(", ")[2],
        "cores": env.usable_cores(),
    }


def visible_cards() -> list[str]:
    """What CUDA_VISIBLE_DEVICES names, or the number of each card; initialises none of them."""
    import torch

    named = env.CUDA_VISIBLE_DEVICES.get()
    count = torch.cuda.device_count()
    return list(named[:count]) if named else [str(index) for index in range(count)]


def _commit() -> str:
    """Commit of the checkout that the package is in; "" for an installed one."""
    package = Path(kernelwright.__file__).parent
    git = ["git", "-C", str(package)]
    if _lines([*git, "ls-files", "--error-unmatch", "__init__.py"]) != ["__init__.py"]:
        return ""
    changed = "+" if _lines([*git, "status", "--porcelain", "-uno", "."]) else ""
    return "".join(_lines([*git, "rev-parse", "--short", "HEAD"])) + changed


def _relative(word: str) -> str:
    """Folders of the machine are no part of how to repeat a run."""
    return Path(word).name if word.startswith(os.sep) else word


def _lines(command: Sequence[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
