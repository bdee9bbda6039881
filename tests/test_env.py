"""Settings are read in one file, are few, and say what they expect."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright import env
from kernelwright.errors import SettingError

_PACKAGE = Path(env.__file__).parent


def test_at_most_ten_of_ours() -> None:
    assert 0 < len(env.OURS) <= 10
    assert all(variable.name.startswith("KERNELWRIGHT_") for variable in env.OURS)


def test_every_variable_in_the_file_is_in_the_docs() -> None:
    declared = {name for name, value in vars(env).items() if isinstance(value, env.Variable)}
    assert len(declared) == len(env.OURS) + len(env.STANDARD)
    table = env.render_settings_table()
    for variable in (*env.OURS, *env.STANDARD):
        assert f"| `{variable.name}` | {variable.default_text} | {variable.doc} |" in table


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (env.CACHE_DIR, "/tmp/x", Path("/tmp/x")),
        (env.CACHE_DIR, "~/x", Path.home() / "x"),
        (env.LOCK_TIMEOUT, "1.5", 1.5),
        (env.LOCK_TIMEOUT, "0", 0.0),
        (env.THREADS, "3", 3),
        (env.TARGET, "CPU", "cpu"),
        (env.EFFORT, " full ", "full"),
        (env.NO_COLOR, "1", True),
    ],
)
def test_values(
    monkeypatch: pytest.MonkeyPatch, variable: env.Variable[object], text: str, value: object
) -> None:
    monkeypatch.setenv(variable.name, text)
    assert variable.get() == value


@pytest.mark.parametrize("variable", [*env.OURS, *env.STANDARD], ids=lambda v: v.name)
def test_unset_and_empty_mean_the_default(
    monkeypatch: pytest.MonkeyPatch, variable: env.Variable[object]
) -> None:
    monkeypatch.setenv(variable.name, "")
    assert variable.get() == variable.default
    monkeypatch.delenv(variable.name)
    assert variable.get() == variable.default


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (env.THREADS, "many"),
        (env.THREADS, "0"),
        (env.THREADS, "-1"),
        (env.LOCK_TIMEOUT, "soon"),
        (env.LOCK_TIMEOUT, "nan"),
        (env.LOCK_TIMEOUT, "inf"),
        (env.TARGET, "rocm"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: env.Variable[object], text: str
) -> None:
    monkeypatch.setenv(variable.name, text)
    with pytest.raises(SettingError, match=f"{variable.name} is '{text}', expected "):
        variable.get()


def test_threads_limit_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELWRIGHT_THREADS", raising=False)
    assert env.usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("KERNELWRIGHT_THREADS", "7")
    assert env.usable_cores() == 7


def test_child_environment_is_ours_with_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_EFFORT", "info")
    child = env.child_environment({"KERNELWRIGHT_EFFORT": "debug", "EXTRA": "1"})
    assert child == {**os.environ, "KERNELWRIGHT_EFFORT": "debug", "EXTRA": "1"}
    assert os.environ["KERNELWRIGHT_EFFORT"] == "info"


def test_no_other_file_reads_the_environment() -> None:
    readers = {"environ", "getenv", "putenv", "environb"}
    for path in _PACKAGE.rglob("*.py"):
        if path == _PACKAGE / "env.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr=attribute):
                    assert attribute not in readers, f"{path}:{node.lineno} reads os.{attribute}"
                case ast.ImportFrom(module="os", names=names):
                    assert not readers & {name.name for name in names}, f"{path}:{node.lineno}"


def test_importing_the_package_imports_no_room() -> None:
    code = (
        "import sys, kernelwright; print([m for m in sys.modules if m.startswith('kernelwright.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_has_the_names_it_lists_and_no_others() -> None:
    import kernelwright
    from kernelwright.errors import KernelwrightError

    assert kernelwright.KernelwrightError is KernelwrightError
    assert set(kernelwright.__all__) <= set(dir(kernelwright))
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = kernelwright.optimise  # type: ignore[attr-defined]
