"""Asks compute-sanitizer's racecheck about hand-overs in shared memory whose order is known.

    python benchmarks/recurrent/hand_over.py --folder DIR --build
    python benchmarks/recurrent/hand_over.py --folder DIR --output FILE.json

The first call needs nvcc and no GPU. The second one prints a line for each way of hand_over.cu: how
many hazards the tool names. All ways but the first are ordered by PTX's memory model.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from sanitizer import program

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from provenance import provenance

WAYS = ("nothing", "one arrives", "each arrives", "warps arrive", "one hands back", "barriers")
_SOURCE = Path(__file__).with_suffix(".cu")
_NVCC = ("nvcc", "-std=c++17", "-O3", "-lineinfo", "-gencode=arch=compute_90a,code=sm_90a")
_SECONDS = 10.0


def asked(way: int, binary: Path) -> dict[str, object]:
    """A way's record."""
    command = [program(), "--tool", "racecheck", str(binary), str(way)]
    record: dict[str, object] = {"way": WAYS[way]}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        return record | {"failed": repr(error)[:200]}
    lines = (ended.stdout + ended.stderr).splitlines()
    bytes_named = sum(int(it) for line in lines for it in re.findall(r"\[(\d+) hazards\]", line))
    said = [line.strip("= ") for line in lines if "SUMMARY" in line or ", sum" in line]
    return record | {"hazards": bytes_named, "said": said}


def main() -> None:
    """Both calls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("hand_over.json"))
    parser.add_argument("--build", action="store_true")
    options = parser.parse_args()
    binary = options.folder / "hand_over"
    if not binary.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([*_NVCC, "-o", str(binary), str(_SOURCE)], check=True)
    if options.build:
        return
    records = []
    for way in range(len(WAYS)):
        records.append(asked(way, binary))
        print(json.dumps(records[-1]), flush=True)
        content = {"provenance": provenance(), "records": records}
        options.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
