"""The command line: what it prints, and the code it exits with."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelwright import __version__, cli
from kernelwright.commands.printing import ProgressLine
from kernelwright.compiling import compile_problem, write_candidate
from kernelwright.errors import ExitCode, OutputError
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.verify.verification import Event

EXAMPLES = Path(__file__).parents[1] / "examples"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the program in this process: exit code, standard output, standard error."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["kernelwright", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


@pytest.mark.parametrize(("words", "code"), [(["version"], 0), (["nonsense"], ExitCode.USAGE)])
def test_the_script_ends_with_the_code_and_all_that_was_said(words: list[str], code: int) -> None:
    program = "import atexit, runpy; atexit.register(print, 'late'); "
    module = "runpy.run_module('kernelwright', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", program + module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert said.strip()
    assert "late" not in said
    assert done.returncode == code


def test_explain_says_what_is_fused_and_what_it_costs(run: Run) -> None:
    code, out, _ = run("explain", EXAMPLES / "linear_relu_div.py")
    assert code == ExitCode.VERIFIED
    assert "linear_relu_div_kernel = linear + relu + div" in out
    assert "335.6 MB, 137.464 GFLOP" in out


def test_explain_shows_the_graph_before_and_after(run: Run) -> None:
    _, out, _ = run("explain", EXAMPLES / "diag_matmul.py")
    before, after = out.split("--- after")
    assert "diagembed(diagonal)" in before and "diagembed(" not in after
    assert "[algebraic]" in out
    _, out, _ = run("explain", EXAMPLES / "diag_matmul.py", "--no-graphs")
    assert "diagembed(" not in out


def test_explain_as_json(run: Run) -> None:
    code, out, _ = run("explain", EXAMPLES / "scalar_mul.py", "--json")
    facts = json.loads(out)
    assert code == 0
    assert [kernel["name"] for kernel in facts["kernels"]] == ["mul_kernel"]
    assert facts["bytes"] == 2 * 4 * 16384 * 4096
    assert facts["left_to_pytorch"] == []


def test_doctor_as_json(run: Run) -> None:
    code, out, _ = run("doctor", "--json")
    names = {check["name"] for check in json.loads(out)["checks"]}
    assert {"PyTorch", "C++ compiler", "cache"} <= names
    assert code in (ExitCode.VERIFIED, ExitCode.UNSUPPORTED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "missing.py"),
        ("def get_inputs(): return []\ndef get_init_inputs(): return []\n", "Model"),
        ("class Model(:\n", "problem.py:1"),
    ],
    ids=["no such file", "no Model", "syntax error"],
)
def test_a_bad_problem_file_is_a_usage_error(
    run: Run, tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / ("problem.py" if text else "missing.py")
    if text:
        path.write_text(text)
    code, out, err = run("explain", path)
    assert code == ExitCode.USAGE
    assert words in err
    assert "next: " in err
    assert out == ""


def test_a_module_that_does_not_export_is_unsupported(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        if x.sum() > 0:\n            return x\n"
        "        return torch.zeros(int(x.sum().item()))\n\n\n"
        "def get_inputs():\n    return [torch.rand(3)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    code, out, _ = run("explain", path, "--json")
    error = json.loads(out)
    assert code == ExitCode.UNSUPPORTED
    assert error["exit_code"] == ExitCode.UNSUPPORTED
    assert error["next_step"]


def test_unknown_options_and_targets_are_usage_errors(run: Run) -> None:
    assert run("explain", "--no-such-option")[0] == ExitCode.USAGE
    code, _, err = run("judge", EXAMPLES / "matmul.py", EXAMPLES / "matmul.py", "--target", "tpu")
    assert code == ExitCode.USAGE
    assert "tpu" in err


def test_without_a_command_there_is_help_and_no_error(run: Run) -> None:
    code, out, err = run()
    assert code == ExitCode.USAGE
    assert "judge" in out
    assert "error" not in err


def test_wrong_words_as_json_have_a_next_step(run: Run) -> None:
    code, out, _ = run("explain", "--json")
    assert code == ExitCode.USAGE
    assert "--help" in json.loads(out)["next_step"]


def test_a_result_that_cannot_be_written_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    code, _, err = run("optimize", EXAMPLES / "scalar_mul.py", "-o", tmp_path, "--target", "cpu")
    assert code == ExitCode.USAGE
    assert f"{tmp_path} is a folder" in err
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OutputError, match=r"new.py cannot be written: .*File exists"):
        write_candidate(
            compile_problem(load_problem(EXAMPLES / "scalar_mul.py"), H200), file / "new.py"
        )


def test_a_mistake_in_forward_is_not_blamed_on_values(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        return x + missing\n\n\n"
        "def get_inputs():\n    return [torch.rand(3)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    code, _, err = run("explain", path)
    assert code == ExitCode.UNSUPPORTED
    assert "problem.py:7" in err
    assert "Call the module on its inputs" in err


def test_what_is_no_run_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for words in (("report", file), ("suite", EXAMPLES, "--run", file, "--target", "cpu")):
        code, _, err = run(*words)
        assert code == ExitCode.USAGE
        assert f"{file} is a file, not the folder of a run" in err
    code, _, err = run("suite", EXAMPLES, "--gpus", "many", "--run", tmp_path / "new")
    assert code == ExitCode.USAGE
    assert "'many'" in err


def test_judging_a_file_that_is_not_there(run: Run) -> None:
    code, _, err = run("judge", EXAMPLES / "matmul.py", "nowhere_new.py")
    assert code == ExitCode.USAGE
    assert "nowhere_new.py" in err


def test_a_malformed_case_is_a_usage_error(run: Run) -> None:
    words = ("judge", EXAMPLES / "matmul.py", EXAMPLES / "matmul.py", "--case", "seed=one")
    code, _, err = run(*words)
    assert code == ExitCode.USAGE
    assert "seed=one" in err


def test_a_malformed_demand_is_a_usage_error(run: Run) -> None:
    words = ("judge", EXAMPLES / "matmul.py", EXAMPLES / "matmul.py", "--demand", "nan=maybe")
    code, _, err = run(*words)
    assert code == ExitCode.USAGE
    assert "nan=reported" in err


def test_strict_refuses_what_is_left_to_pytorch(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sorting.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        return torch.sort(x)[0]\n\n\n"
        "def get_inputs():\n    return [torch.rand(2, 8)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    code, _, err = run("optimize", path, "--strict", "--target", "cpu")
    assert code == ExitCode.UNSUPPORTED
    assert "sort" in err
    assert "sorting.py:7" in err
    assert not (tmp_path / "sorting_new.py").exists()


def test_no_compiler_is_an_error_with_a_next_step(
    run: Run, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    output = tmp_path / "mul_new.py"
    code, _, err = run(
        "optimize", EXAMPLES / "scalar_mul.py", "-o", output, "--target", "cpu", "--seeds", 1
    )
    assert code == ExitCode.DOES_NOT_BUILD
    assert "compiler" in err


def test_the_version_as_json(run: Run) -> None:
    code, out, _ = run("version", "--json")
    assert (code, json.loads(out)) == (0, {"version": __version__})


def test_clean_empties_the_cache(run: Run, cache: Path) -> None:
    code, out, _ = run("clean", "--json")
    assert code == ExitCode.VERIFIED
    assert json.loads(out) == {"removed": 0, "freed_bytes": 0, "kept": 0, "kept_bytes": 0}


_CHILDREN = """
import json
import threading

from kernelwright.commands.forking import children
from kernelwright.worker.process.nursery import current

seen = []
with children():
    seen.append(current() is not None)
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
with children():
    seen.append(current() is not None)
stop.set()
seen.append(current() is not None)
print(json.dumps(seen))
"""


def test_children_are_forked_where_there_is_one_thread(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(_CHILDREN)
    assert run_script(script) == [True, False, False]


def test_ctrl_c_while_a_file_is_judged_says_that_the_file_is_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelwright.pipeline._judge_shrunk", interrupted)
    written = tmp_path / "new.py"
    words = ("optimize", EXAMPLES / "scalar_mul.py", "-o", written, "--target", "cpu")
    code, out, err = run(*words)
    assert (code, out) == (130, "")
    assert f"interrupted: {written} is written, but not verified" in err
    assert "capture: scalar_mul.py" in err  # no terminal: a stage is a line
    assert "class ModelNew" in written.read_text()


def test_a_line_of_progress_says_how_far_it_is_and_what_is_left() -> None:
    lines: list[str] = []
    said: list[str] = []
    seconds = iter([0.0, 8.0, 8.0, 20.0])
    line = ProgressLine(lines.append, said.append, lambda: next(seconds))
    line.event(Event(stage="tune", message="gelu", done=0, total=5))
    line.event(Event(stage="tune", message="norm", done=2, total=5))
    line.begin("time", "calls [of both]")
    line.event(Event(stage="time", message="calls", done=1, total=1))
    assert lines == [
        "tune 1/5: gelu; then build, verify, time",
        "tune 3/5: norm, about 12 s left; then build, verify, time",
        "time: calls \\[of both]",
        "time: calls",
    ]
    assert said == ["tune: gelu", "time: calls [of both]"]
