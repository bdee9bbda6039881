"""Times attention beside PyTorch's backends, and its errors against float64.

    python benchmarks/attention/attention.py --seconds 140 --output FILE.json
    python benchmarks/attention/attention.py --build-only --libraries FOLDER     # needs no GPU

Needs nvcc, a GPU and torch, and no kernelwright. Libraries are compiled while others are timed.
Prints a line for each case, and writes it to the journal beside the output, when it is done; a
second run with the same journal goes on where it stopped.
"""

import argparse
import json
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from library import Launch as Ours
from library import Variant, build_all
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from event_time import median_ms
from provenance import provenance

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
SHORT = 1536
"""Rows up to which one warpgroup a block, short steps and one stage are tried, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call's sizes."""

    dtype: str
    batch: int = 8
    heads: int = 16
    kv_heads: int = 16
    rows: int = 2048
    keys: int = 2048
    depth: int = 64
    causal: bool = False
    mask: str = ""
    """"added" to scores of all heads, "bias" of each head, true where "kept", "padding" of keys."""

    def name(self) -> str:
        """As the record has it."""
        shape = f"{self.batch}x{self.heads}/{self.kv_heads}x{self.rows}x{self.keys}x{self.depth}"
        return (
            f"{self.dtype} {shape}{' causal' * self.causal}{f' {self.mask}' if self.mask else ''}"
        )

    def flops(self) -> float:
        """Two for each multiply-add of a score that is not masked by its place."""
        whole = min(self.rows, self.keys)
        scores = self.rows * self.keys
        if self.causal:
            scores = whole * (whole + 1) // 2 + (self.rows - whole) * self.keys
        return 4.0 * self.batch * self.heads * scores * self.depth

    def variants(self) -> list[Variant]:
        """What may be fast for it."""
        depth, width = (math.ceil(self.depth / step) * step for step in (16, 64))
        pairs = self.dtype == "float32"
        blocks = (128, 64) if max(depth, width) <= (64 if pairs else 128) else (64,)
        group = self.heads // self.kv_heads * self.rows
        few = 1 << (group - 1).bit_length() if group <= 8 else 0
        narrow = not pairs and width <= 64 and not few
        consumers = (1,) if few or (pairs and width > 128) else (2, 3) if narrow else (2,)
        stages = 1 if pairs and width > 128 else 2
        masking = {"": "NONE", "kept": "KEEP", "padding": "KEEP"}.get(self.mask, "ADD")
        if self.rows <= SHORT and not few and max(depth, width) <= 64:
            return [
                Variant(self.dtype, depth, width, block, stages, count, masking, self.causal)
                for block in (128, 64)
                for count in ((1, 2) if self.rows > 64 else (1,))
                for stages in ((1, 2) if pairs else (2,))
            ]
        sizes = [(block, count) for block in blocks for count in consumers]
        return [
            Variant(self.dtype, depth, width, block, stages, count, masking, self.causal, few)
            for block, count in sizes[: 1 if few else 2]
        ]

    def mask_of_call(self) -> torch.Tensor | None:
        """The mask of the case."""
        scores, dtype = (self.rows, self.keys), getattr(torch, self.dtype)
        match self.mask:
            case "added":
                return torch.rand(self.batch, 1, *scores, device="cuda").to(dtype)
            case "bias":
                return torch.rand(1, self.heads, *scores, device="cuda").to(dtype)
            case "kept":
                return torch.rand(self.batch, 1, *scores, device="cuda") < 0.8
            case "padding":
                lengths = torch.randint(self.keys // 2, self.keys, (self.batch, 1, 1, 1))
                return (torch.arange(self.keys) < lengths).cuda()
        return None


def _cases() -> list[Case]:
    """Those of the acceptance first."""
    dtypes = ("float32", "bfloat16", "float16")
    first = [
        Case(dtype=dtype, depth=depth, causal=causal)
        for dtype in dtypes
        for depth in (64, 128)
        for causal in (False, True)
    ]
    others = [
        case
        for dtype in dtypes[:2]
        for case in (
            Case(dtype=dtype, rows=512, keys=512, heads=12, kv_heads=12),
            *(
                Case(dtype=dtype, rows=512, keys=512, heads=12, kv_heads=12, mask=mask)
                for mask in ("added", "bias", "kept", "padding")
            ),
            Case(dtype=dtype, rows=513, keys=513, heads=12, kv_heads=12, mask="kept"),
            Case(dtype=dtype, batch=4, rows=1023, keys=1025, heads=12, kv_heads=12, depth=80),
            Case(dtype=dtype, batch=4, rows=1024, keys=1024, kv_heads=4, causal=True),
            Case(dtype=dtype, batch=16, rows=1, keys=4096, heads=16, kv_heads=4, depth=128),
            Case(dtype=dtype, batch=16, rows=1, keys=4096, heads=32, kv_heads=4, depth=128),
            Case(dtype=dtype, batch=1, rows=1, keys=4096, heads=32, kv_heads=8, depth=128),
            Case(dtype=dtype, batch=16, rows=1, keys=4096),
            Case(dtype=dtype, batch=2, depth=256),
        )
    ]
    return [*first, *others, *_short_cases()]


def _short_cases() -> list[Case]:
    """Windows of 7 x 7 with a bias of each head, patches, texts, and lengths that are not short."""
    return [
        case
        for dtype in ("float32", "bfloat16")
        for case in (
            *(
                Case(dtype=dtype, batch=batch, heads=heads, kv_heads=heads, rows=49, keys=49,
                     depth=32, mask="bias")
                for batch, heads in ((2048, 3), (512, 6), (128, 12), (32, 24))
            ),
            Case(dtype=dtype, batch=2048, heads=2, kv_heads=2, rows=49, keys=49, depth=32),
            Case(dtype=dtype, batch=32, heads=12, kv_heads=12, rows=77, keys=77, causal=True),
            Case(dtype=dtype, batch=32, heads=12, kv_heads=12, rows=128, keys=128),
            Case(dtype=dtype, batch=32, heads=12, kv_heads=12, rows=197, keys=197),
            Case(dtype=dtype, batch=8, heads=12, kv_heads=12, rows=512, keys=512, mask="bias"),
            Case(dtype=dtype, batch=16, heads=12, kv_heads=12, rows=256, keys=256),
            Case(dtype=dtype, batch=4, heads=12, kv_heads=12, rows=1024, keys=1024, causal=True),
            Case(dtype=dtype, batch=8, heads=8, kv_heads=8, rows=1500, keys=1500),
        )
    ]  # fmt: skip


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention as people write it."""
    return torch.softmax(q @ k.mT * (q.shape[-1] ** -0.5), -1) @ v


def measure(case: Case, libraries: dict[Variant, Any], *, compiles: bool) -> dict[str, object]:
    """One case's record."""
    torch.manual_seed(0)
    dtype = getattr(torch, case.dtype)
    shapes = [(case.heads, case.rows), (case.kv_heads, case.keys), (case.kv_heads, case.keys)]
    q, k, v = (torch.rand(case.batch, *it, case.depth, device="cuda").to(dtype) for it in shapes)
    mask = case.mask_of_call()
    record: dict[str, Any] = {"case": case.name(), "flops": case.flops()}
    grouped = case.heads != case.kv_heads

    def theirs() -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=case.causal, enable_gqa=grouped
        )

    with torch.no_grad():
        heads = case.heads // case.kv_heads
        exact = F.scaled_dot_product_attention(
            q[:1, :heads].double(), k[:1, :1].double(), v[:1, :1].double(),
            attn_mask=_exact_mask(mask), is_causal=case.causal, enable_gqa=grouped,
        )  # fmt: skip
        record["default_ms"] = median_ms(theirs, 7)
        record["default_errors"] = _errors(theirs()[:1, :heads], exact)
        for name, backend in BACKENDS.items():
            try:
                with sdpa_kernel(backend):
                    record[f"{name}_ms"] = median_ms(theirs, 5)
            except RuntimeError:  # it does not take the call
                torch.cuda.synchronize()
        if compiles and not (case.causal or case.mask or grouped):
            record["eager_ms"] = median_ms(lambda: eager(q, k, v), 3)
            compiled = torch.compile(eager, dynamic=False)
            record["compiled_ms"] = median_ms(lambda: compiled(q, k, v), 5)
        record["variants"] = []
        for variant in case.variants():
            found: dict[str, Any] = {"variant": str(variant)}
            result = torch.full_like(q, torch.nan)
            try:
                run = Ours(libraries[variant].result(), [q, k, v], mask, result)
                found["ms"] = median_ms(run, 7)
                first = result.clone()
                run()
                torch.cuda.synchronize()
                found["repeats"] = torch.equal(first, result)
                found["errors"] = _errors(result[:1, :heads], exact)
            except Exception as error:
                found["failed"] = str(error)[:300]
            record["variants"].append(found)
    return record


def _exact_mask(mask: torch.Tensor | None) -> torch.Tensor | None:
    """The mask of the first head of the first batch, in float64 where it is added."""
    if mask is None:
        return None
    return mask[:1, :1] if mask.dtype is torch.bool else mask[:1, :1].double()


def _errors(result: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """RMS error over RMS, and the greatest error over the greatest."""
    difference = result.double() - exact
    most = difference.abs().max() / exact.abs().max()
    return (difference.norm() / exact.norm()).item(), most.item()


def _line(record: dict[str, Any]) -> str:
    """Our best variant beside the best of PyTorch's."""
    times = {name[:-3]: value for name, value in record.items() if name.endswith("_ms")}
    best = min(value for name, value in times.items() if name != "eager")
    words = [f"{name} {value:.3f}" for name, value in times.items()]
    for it in record["variants"]:
        if "failed" in it:
            words.append(f"[{it['variant']} FAILED {it['failed']}]")
            continue
        rate = record["flops"] / it["ms"] / 1e9
        same = "" if it["repeats"] else " NOT THE SAME AGAIN"
        words.append(
            f"[{it['variant']} {it['ms']:.3f} ms x{best / it['ms']:.2f} {rate:.0f} TFLOP/s "
            f"err {it['errors'][0]:.1e}/{it['errors'][1]:.1e}{same}]"
        )
    first, most = record["default_errors"]
    return f"{record['case']}: {', '.join(words)}; PyTorch's err {first:.1e}/{most:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("attention.json"))
    parser.add_argument("--seconds", type=float, default=140.0, help="it stops after these")
    parser.add_argument("--libraries", type=Path, default=Path("/tmp/kernelwright_attention"))
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--short", action="store_true", help="cases of few rows and keys alone")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    journal = options.output.with_suffix(".jsonl")
    records = []
    if journal.exists():
        records = [json.loads(line) for line in journal.read_text().splitlines()]
    done = {record["case"] for record in records}
    asked = _short_cases() if options.short else _cases()
    cases = [case for case in asked if case.name() not in done]
    pool = ThreadPoolExecutor(options.jobs)
    wanted = list(dict.fromkeys(variant for case in cases for variant in case.variants()))
    libraries = build_all(wanted, options.libraries, pool)
    if options.build_only:
        pool.shutdown()
        return
    for case in cases:
        if time.monotonic() > end:
            break
        record = measure(case, libraries, compiles=options.compile)
        records.append(record)
        with journal.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(_line(record), flush=True)
        content = {"provenance": provenance(), "records": records}
        options.output.write_text(json.dumps(content, indent=1) + "\n")
    pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
