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

`kernelwright judge MODEL MODEL_NEW` prints one status, then what decided it, with the case that
shows it and the command that runs this case alone. Warnings decide nothing. `--json` prints the
same for programs, to standard output; the command's exit code is that of the status.

| exit code | means |
| --- | --- |
| 0 | verified, and faster than the best baseline (or its speed was not asked for) |
| 1 | wrong, unsafe or dishonest |
| 2 | verified, but not faster |
| 3 | does not build |
| 4 | outside of what can be judged here |
| 64 | the command itself was wrong |

## Statuses

"""
_AFTER_TABLE = """
## When values are right

Candidate and reference are both measured against the reference run in float64 on the very same
values. The candidate's root mean square error may be twice the reference's, plus one rounding, plus
what one sum of as many terms in float32 loses, plus (where that is not enough) four times what
rounding every input and every result in between once loses. The largest error of one element is
held to the same. Deep networks may amplify roundings until nothing of the exact result is left in
the reference's own; there a result has to be as large as the reference's, and a warning says what
else would do. This is asked on the problem's own inputs and on others (zero mean, small, large,
heavy-tailed, whole, cancelling), with several weights, layouts and sizes, twice on the same inputs,
and where memory that nothing wrote reads as NaN. Wrong answers (zeros, a constant, other weights,
an ignored input, operands rounded to 16 bits or TF32) go through the same comparison: a warning
says which of them the problem cannot tell from a right one.

A file may rely on what the problem promises: sizes that powers of two up to 32 divide as they do in
the problem are asked of every file, and so are all others of ours. Of files of others a wrong
result at those is a warning; best refuse them with an exception. On the emulator the sizes stand
for the problem's own, which it cannot run, and all of them count.

Everything is asked before NaN and Inf are: a file that is wrong only there is told so in the first
line, with the demand that accepts it.

A problem of more than a gigabyte is run at full size on its own inputs and zero-mean ones; all else
is asked at reduced sizes, and the verdict says which.

## Not drop-in

A file is judged by what it computes, whatever it calls its parameters: files with other names,
another order, or buffers besides are verified. Which tensor stands for which of the reference's is
found by value, as both modules are made under one seed. What its user loses is in the status and in
the first line:

* *load_state_dict has other keys* (or *means other values*: weights that were scaled once): a
  checkpoint of the reference has to be converted, or cannot be.
* *does not follow weights that change after construction*: it copied, packed or scaled them in its
  constructor. Trained further or loaded anew, the module gives the results of the old ones.

Such a file is made under two seeds more than others, with other gains, biases and running
statistics than the ones and zeros of a new module, and, where a tensor stands for each of the
reference's, with other weights loaded. One that never looks at a weight is wrong, whatever it is
called. Buffers that stand for nothing of the reference's stay as a call leaves them; so a result
hidden in one is found. `--demand drop-in` refuses all these files; ours are always asked for it.

## A check

Each check has a name, an outcome (`passed`, `failed`, `warning`, `skipped`), its evidence in a
sentence with numbers, the status that it would lead to, and its input case. A case is a line such
as `seed=1 distribution=normal layout=as-made weights=made`: the same line after `--case` runs it
again. Values of the four words, and `size:NAME=VALUE` for other sizes, are those of
`Distribution`, `Layout` and `Weights` in the room `verify`.

Which failures are the verdict and which a warning is `Demands` in the same room. To ask for less
(a ReLU by `fmaxf` gives zero where PyTorch's gives NaN) give `--demand nan=reported`, for more
`--demand layouts=required`, or just `--demand drop-in`; where less than usual was asked, a check
named `demands` says so. A file that calls its class `Model` and has no `ModelNew` is judged with a
note.

## JSON

What `--json` prints has a [JSON Schema](judgement.schema.json). Numbers that JSON cannot write are
the texts "nan", "inf" and "-inf".
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
