"""The generated pages of docs/ are what the code says; `pytest --update-golden` rewrites them."""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.models import OptionInfo

import kernelwright
from kernelwright import cli, env
from kernelwright.codegen import emit
from kernelwright.compiling import compile_problem
from kernelwright.errors import ExitCode, render_errors_table
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.report.schema import member_texts, render_schema, render_verdict_page

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import front_page
import kernelbench_groups
from capture_corpus import declare_torchvision

DOCS = Path(__file__).parents[1] / "docs"

SETTINGS = (
    "# Settings\n\nEnvironment variables: first those of kernelwright, then those of others that "
    "it reads or sets.\n\n"
)
ERRORS = (
    "# Errors\n\nAll errors of kernelwright; each is a subclass of `KernelwrightError`. A message "
    "says what is wrong,\nthe line of your file where there is one, and the next step. `--json` "
    "prints the same as JSON.\nThe exit codes are those of the [command line](cli.md).\n\n"
)
COMMANDS = (
    "# Command line\n\n`kernelwright COMMAND --help` prints the same. Results go to standard "
    "output, progress and errors to\nstandard error. With `--json`, results and errors are JSON on "
    "standard output.\n\n"
)


def _import_all_rooms() -> None:
    for module in pkgutil.walk_packages(kernelwright.__path__, "kernelwright."):
        if not module.name.endswith("worker.child"):
            importlib.import_module(module.name)


def _pages() -> dict[str, str]:
    _import_all_rooms()
    return {
        "settings.md": SETTINGS + env.render_settings_table(),
        "errors.md": ERRORS + render_errors_table(),
        "verdict.md": render_verdict_page(),
        "judgement.schema.json": render_schema(),
        "cli.md": COMMANDS + _exit_codes() + "".join(_commands()),
    }


def _exit_codes() -> str:
    texts = member_texts(ExitCode)
    rows = [f"| {int(code)} | {texts[code.name]} |" for code in ExitCode]
    return "\n".join(
        ["| exit code | means |", "| --- | --- |", *rows, "| 130 | Interrupted. |", ""]
    )


def _commands() -> Iterator[str]:
    """A section for each command, read off its function: typer's own objects change."""
    for command in cli.app.registered_commands:
        function = command.callback
        assert function is not None and function.__doc__
        hints = get_type_hints(function, include_extras=True)
        rows = [
            _row(name, parameter.default, *get_args(hints[name]))
            for name, parameter in inspect.signature(function).parameters.items()
        ]
        table = (
            ["| argument | default | meaning |", "| --- | --- | --- |", *rows, ""] if rows else []
        )
        words = [f"\n## {function.__name__}\n", inspect.cleandoc(function.__doc__), "", *table]
        yield "\n".join(words)


def _row(name: str, default: Any, kind: Any, info: Any) -> str:
    if isinstance(info, OptionInfo):
        dashed = name.replace("_", "-")
        switch = kind is bool or kind == (bool | None)
        both = default is True or (switch and default is None)
        own = f"--{dashed}/--no-{dashed}" if both else f"--{dashed}"
        # Inside of Annotated, the first name of an option stands where its default used to.
        names = (info.default, *(info.param_decls or ()))
        given = [word for word in names if isinstance(word, str)]
        value = "" if switch else " " + name.upper()
        return f"| `{', '.join(given or [own])}{value}` | {_default(default)} | {info.help} |"
    return f"| `{info.metavar or name.upper()}` | required | {info.help} |"


def _default(value: Any) -> str:
    match value:
        case True:
            return "on"
        case None | False | "":
            return ""
    return f"`{value}`"


def test_generated_pages_are_current(request: pytest.FixtureRequest) -> None:
    for name, text in _pages().items():
        if request.config.getoption("--update-golden"):
            (DOCS / name).write_text(text)
        assert (DOCS / name).read_text() == text, "run pytest tests/test_docs.py --update-golden"


def test_links_between_pages_lead_somewhere() -> None:
    root = DOCS.parent
    for page in (root / "README.md", *DOCS.glob("*.md")):
        for part in page.read_text().split("](")[1:]:
            target = part.split(")")[0]
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_test_that_the_page_of_trust_names_exists() -> None:
    root = DOCS.parent
    named = [part for part in (DOCS / "trust.md").read_text().split("`")[1::2] if "::" in part]
    assert len(named) >= 20
    for name in named:
        file, _, function = name.partition("::")
        assert f"\ndef {function}(" in (root / file).read_text(), name


def _blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page that are in `language`."""
    parts = (DOCS / page).read_text().split(f"```{language}\n")[1:]
    return [part.split("```")[0] for part in parts]


def test_the_module_of_the_quickstart_is_one_kernel(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(_blocks("quickstart.md", "python")[0])
    compiled = compile_problem(load_problem(path), H200)
    assert len(compiled.plan.kernels) == 1
    assert compiled.plan.left_to_pytorch == ()


def test_commands_of_the_pages_exist() -> None:
    lines = [
        line
        for page in sorted(DOCS.glob("*.md"))
        for block in _blocks(page.name, "sh")
        for line in block.splitlines()
        if line.startswith("kernelwright ")
    ]
    assert len(lines) >= 5
    known = {entry.callback.__name__: entry for entry in cli.app.registered_commands}
    described = (DOCS / "cli.md").read_text().split("\n## ")
    for line in lines:
        _, command, *words = shlex.split(line, comments=True)
        assert command in known, line
        (section,) = (part for part in described if part.startswith(f"{command}\n"))
        for word in words:
            assert not word.startswith("-") or f"{word} " in section.replace("`", " ").replace(
                ",", " "
            ), line


@pytest.mark.parametrize("page", ["../README.md", "api.md"])
def test_python_for_a_module_in_memory_runs(page: str) -> None:
    blocks = [block for block in _blocks(page, "python") if "kw.optimize(model, (x,))" in block]
    assert len(blocks) == 1
    values: dict[str, Any] = {}
    exec(compile(blocks[0], page, "exec"), values)
    assert isinstance(values["fast"], kernelwright.OptimizedModule)
    assert values["fast"].kernelwright.kernels == ("add_gelu_layer_norm",)


def test_python_of_the_pages_names_what_there_is() -> None:
    offered = set(kernelwright.__all__)
    for block in [*_blocks("api.md", "python"), *_blocks("../README.md", "python")]:
        for node in ast.walk(ast.parse(block)):
            match node:
                case ast.Attribute(ast.Name("kw"), name):
                    assert name in offered


def test_table_and_chart_of_the_readme_are_those_of_the_published_run() -> None:
    run = json.loads(front_page.RUN.read_text())
    found = front_page.groups(run["rows"])
    readme = front_page.README.read_text()
    assert front_page.with_results(readme, run, found) == readme, "run benchmarks/front_page.py"
    assert front_page.CHART.read_text() == front_page.chart(found[:3])
    assert sum(it.problems for it in found[:3]) == run["provenance"]["problems"] == 250


def test_the_readme_names_the_problems_that_are_slower() -> None:
    run = json.loads(front_page.RUN.read_text())
    slower = kernelbench_groups.sums(run["rows"])["slower"]
    (told,) = re.findall(r"\*Slower\* counts.*?\n\n", front_page.README.read_text(), re.DOTALL)
    named = {
        f"level{level}/{number}"
        for level, part in re.findall(r"In level (\d)(.*?)(?=In level|$)", told, re.DOTALL)
        for numbers in re.findall(r"nos?\. ([\d,\s]+)\)", part)
        for number in re.findall(r"\d+", numbers)
    }
    assert named == {problem.partition("_")[0] for problem in slower}


def test_the_readme_is_short_and_has_no_other_measured_number() -> None:
    readme = front_page.README.read_text()
    assert len(readme.splitlines()) <= 120
    before, _, rest = readme.partition(front_page.BEGIN)
    text = before + rest.partition(front_page.END)[2]
    prose = "".join(text.split("```")[::2])
    assert re.findall(r"\d(?:x|%| ms| us| s| TFLOP| GB)\b", prose) == []
    assert all(line.partition("[")[2] for line in readme.splitlines() if line.startswith("!"))


def test_the_kernel_of_the_readme_is_what_is_emitted() -> None:
    golden = DOCS.parent / "tests" / "codegen" / "golden" / "test_golden" / "linear_relu_div.cu"
    shown = _blocks("../README.md", "cuda")
    assert len(shown) == 1
    assert all(block in golden.read_text() for block in shown)


def test_what_the_page_of_an_emitted_file_shows_is_in_that_file(tmp_path: Path) -> None:
    module, *python = _blocks("reading.md", "python")
    path = tmp_path / "swish.py"
    path.write_text(module)
    source = emit(load_problem(path), compile_problem(load_problem(path), H200).plan, ()).source
    shown = [*python, *_blocks("reading.md", "cuda")]
    assert len(shown) >= 5
    for block in shown:
        assert block in source, block


@pytest.mark.parametrize("package", ["torch", "torchvision", "timm", "transformers"])
def test_the_networks_of_the_page_are_captured(package: str) -> None:
    declare_torchvision()
    pytest.importorskip(package)
    first, *blocks = _blocks("networks.md", "python")
    others = ("torchvision", "timm", "transformers")
    own = [it for it in blocks if not any(name in it for name in others)]
    wanted = own if package == "torch" else [it for it in blocks if package in it]
    assert wanted
    values: dict[str, Any] = {}
    for block in (first, *wanted):
        exec(compile(block, "networks.md", "exec"), values)
    assert values["facts"].kernels
