"""The JSON that `kernelwright judge --json` prints, as a JSON Schema made of the records.

A field's description is the text below it in the source, so that the page of docs/ and the code
cannot say different things.
"""

import ast
import dataclasses
import inspect
import json
import textwrap
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from kernelwright.bench.measurement import Measurement
from kernelwright.report.advice import NEXT_STEPS
from kernelwright.verify.verdict import Status, Verdict

Schema = dict[str, Any]

_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: _NUMBER,
    type(None): {"type": "null"},
}


def judgement_schema() -> Schema:
    """Schema of the whole object: "verdict" and "measurement"."""
    verdict = _schema(Verdict)
    verdict["properties"]["exit_code"] = {
        "type": "integer",
        "description": "What the command exits with.",
    }
    check = verdict["properties"]["checks"]["items"]
    check["properties"]["reproduce"] = {
        "type": "string",
        "description": "The command, but for the files, that runs this case alone; empty without.",
    }
    for added, schema in (("exit_code", verdict), ("reproduce", check)):
        schema["required"].append(added)
    measurement = _schema(Measurement)
    measurement["properties"]["faster"] = {
        "type": "boolean",
        "description": "Whether it is faster than every baseline, with 95 % confidence.",
    }
    measurement["required"].append("faster")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"verdict": verdict, "measurement": measurement},
        "required": ["verdict", "measurement"],
    }


def render_verdict_page() -> str:
    """docs/verdict.md: every status with its exit code and advice."""
    texts = member_texts(Status)
    rows = [
        f"| `{status.name}` | {status.value} | {int(status.exit_code)} | "
        f"{texts.get(status.name, '')} | {NEXT_STEPS[status]} |"
        for status in Status
    ]
    table = "\n".join(("| status | in words | exit code | means | next |", _RULE, *rows))
    return f"{_INTRODUCTION}{table}\n{_AFTER_TABLE}"


def render_schema() -> str:
    """docs/judgement.schema.json: what `judge --json` prints, as a JSON Schema."""
    return json.dumps(judgement_schema(), indent=1) + "\n"


_RULE = "| --- | --- | --- | --- | --- |"
_INTRODUCTION = """# The verdict

`kernelwright judge MODEL MODEL_NEW` verifies the file `MODEL_NEW`, the *candidate*, against the
module in `MODEL`, the *reference*. It prints one status, then what decided it: the failed check,
the case that shows the failure, and the command that runs this case alone. Warnings decide nothing.
`--json` prints the same for programs. The command exits with the exit code of the status.

| exit code | means |
| --- | --- |
| 0 | verified, and faster than the best baseline (or its speed was not measured) |
| 1 | wrong, unsafe or dishonest |
| 2 | verified, but not faster |
| 3 | does not build |
| 4 | cannot be judged here |
| 64 | the command itself was wrong |

A *baseline* is the reference run by eager PyTorch or by torch.compile. The *modelled floor* that
the command prints is the least time in which this card could move the bytes and do the arithmetic
of the problem.

## Statuses

"""
_AFTER_TABLE = """
## When values are right

The reference is also run in float64 on the same values, and both its own result and the candidate's
are compared with that. On a GPU the candidate's root mean square error may be twice the
reference's, plus one rounding, plus twice what a plain float32 sum of as many terms loses. Where
that is not enough, four times what it costs to round every input and every intermediate result once
is added. The largest error of a single element may be eight times the reference's, with larger
additions. Limits are wider on the emulator, where the reference runs on the CPU, and for results of
few elements. Where the float64 run fails or computes something else, the reference's own result is
the measure. `verify/tolerance.py` has all the numbers.

A deep network may amplify roundings until the reference's own result has nothing in common with
the exact one. Then the candidate's result only has to be as large as the reference's, and a warning
says which wrong results would pass as well.

Values are compared on the problem's own inputs and on others (zero mean, small, large,
heavy-tailed, whole numbers, cancelling), with several weights, memory layouts and sizes, twice on
the same inputs, and with memory in which everything that was not written reads as NaN. Wrong
answers are compared in the same way: zeros, a constant, other weights, an ignored input, operands
rounded to 16 bits or TF32. A warning names those that this problem cannot tell from a right one.

Not all sizes count alike. A candidate must be right at sizes that are divisible by the same powers
of two, up to 32, as the problem's own. At all other sizes a wrong result is only a warning, except
for files that `optimize` writes; a candidate does best to raise an exception there. On the
emulator all sizes count, since it cannot run the problem's own.

NaN and Inf come last. A candidate that is wrong only there gets a status of its own, and the first
line names the `--demand` that accepts it.

A problem of more than a gigabyte is run at full size only on its own inputs and on zero-mean ones.
All else is run at reduced sizes, which the verdict names.

## Not drop-in

A candidate is judged by what it computes, not by the names of its parameters. Files with other
names, another order or additional buffers are verified. Both modules are made under one seed, so
the judge finds by value which of the candidate's tensors stands for which of the reference's. What
a user of such a file loses is in the status and in the first line:

* *load_state_dict has other keys*, or *means other values* (weights that were scaled once): a
  checkpoint of the reference has to be converted, or cannot be used.
* *does not follow weights that change after construction*: the constructor copied, packed or scaled
  them. After training or loading, the module still gives the results of the old weights.

Such a file is run under two more seeds, with gains, biases and running statistics other than the
ones and zeros of a new module. Where each of the reference's tensors has a counterpart, other
weights are loaded too. A file that never reads a weight is wrong, whatever it calls the weight. A
result that is hidden in an additional buffer is found, since such buffers stay as a call left them.
`--demand drop-in` refuses all these files; files that `optimize` writes must always be drop-in.

## A check

Each check has a name, an outcome (`passed`, `failed`, `warning`, `skipped`), its evidence in a
sentence with numbers, the status that it leads to when it fails, and its case. A case says which
inputs were used, in a line such as `seed=1 distribution=normal layout=as-made weights=made`.
`--case` with this line runs the case again. The words are the members of `Distribution`, `Layout`
and `Weights` in `src/kernelwright/verify`; `size:NAME=VALUE` sets a size constant of the problem.

A *demand* says whether a failed check decides the verdict (`required`), is a warning (`reported`)
or is not run (`skipped`). The demands and their defaults are the fields of `Demands` in
`verify/cases.py`. For example, a ReLU by `fmaxf` gives zero where PyTorch's gives NaN:
`--demand nan=reported` accepts it. `--demand layouts=required` asks for more than usual, as does
`--demand drop-in`. Where less than usual was asked, a check named `demands` says so. A file that
has no `ModelNew` is judged by its class `Model`, and a warning says so.

## JSON

What `--json` prints has a [JSON Schema](judgement.schema.json). The numbers that JSON cannot write
are the texts "nan", "inf" and "-inf".
"""


def member_texts(owner: type) -> dict[str, str]:
    """The texts below the fields of a class, or below the members of an enum, on one line each."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
    return texts


def _schema(kind: Any) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(argument) for argument in arguments]}
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is tuple:
        items = [_schema(argument) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record_schema(kind)
    return dict(_PLAIN[kind])


def _record_schema(record: type) -> Schema:
    hints, texts = get_type_hints(record), member_texts(record)
    names = [field.name for field in dataclasses.fields(record)]
    properties = {}
    for name in names:
        text = {"description": texts[name]} if name in texts else {}
        properties[name] = {**_schema(hints[name]), **text}
    return {"type": "object", "properties": properties, "required": names}
