"""What all tests share: a cache, golden files, scripts that run as processes, the mark `gpu`."""

import gc
import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the code produces now into the golden files, instead of comparing",
    )
    parser.addoption(
        "--random-graphs",
        type=int,
        default=200,
        help="how many random graphs are captured, planned and compared",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no device; torch is asked only if there are some.

    Once `-m` has chosen: to ask initialises the driver, after which no fork can use a card.
    """
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Only tests marked `gpu` see a card, and what they start: the others do the same anywhere.

    Around the fixtures of every scope, which start processes as well. Each begins with the same
    seed, whatever ran before it in its worker.
    """
    with pytest.MonkeyPatch.context() as patch:
        seen = item.get_closest_marker("gpu") is not None
        if "torch" in sys.modules:
            torch = sys.modules["torch"]
            # To seed a card that is not there takes a thousand times as long: who asks is noted.
            (torch.manual_seed if seen else torch.default_generator.manual_seed)(0)
        if not seen:
            patch.setenv("CUDA_VISIBLE_DEVICES", "")
            if "torch" in sys.modules:  # which has asked the driver already where some are marked
                patch.setattr("torch.cuda.is_available", lambda: False)
                patch.setattr("torch.cuda.device_count", lambda: 0)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported is no garbage: to look for some meanwhile takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported stays, and is looked through for garbage no more: a tenth of the time.

    Processes that are forked from this one share its pages the longer for it. PyTorch computes in
    one thread: others wait for its next call in a loop that takes a core.
    """
    gc.collect()
    gc.freeze()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache folder for the run, shared by its workers, so that each thing is built once.

    Never the user's: what lies there would decide whether a test builds anything.
    """
    base = tmp_path_factory.getbasetemp()
    # The base folders of xdist's workers lie side by side in that of the run.
    folder = (base.parent if base.name.startswith("popen-") else base) / "kernelwright-cache"
    patch = pytest.MonkeyPatch()
    patch.setenv("KERNELWRIGHT_CACHE_DIR", str(folder))
    yield folder
    patch.undo()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("KERNELWRIGHT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(text, "softmax.cu")`: the text is that of `golden/<test module>/softmax.cu` here.

    `pytest --update-golden` writes the files; read the diff before you commit it.
    """
    folder = request.path.parent / "golden" / request.path.stem

    def check(text: str, name: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.is_file(), f"no golden file {path}; make it with --update-golden"
        assert text == path.read_text()

    return check


@pytest.fixture(scope="session")
def run_script() -> Callable[..., Any]:
    """`run_script(path, "3")`: the JSON in the last line that `python path 3` prints.

    The process is a fork of this one, which has PyTorch in memory: to import it takes seconds.
    """
    return _forked


def _forked(path: Path, *arguments: object) -> Any:
    import torch  # noqa: F401

    with tempfile.TemporaryFile() as output:
        process = os.fork()
        if process == 0:
            _become([str(path), *map(str, arguments)], output.fileno())
        try:
            _, status = os.waitpid(process, 0)
        except BaseException:  # the test's time is over
            os.kill(process, signal.SIGKILL)
            raise
        output.seek(0)
        text = output.read().decode(errors="replace")
    assert os.waitstatus_to_exitcode(status) == 0, text[-3000:]
    return json.loads(text.splitlines()[-1])


def _become(arguments: list[str], output: int) -> None:
    """Run the script as if Python had begun with it, and end this process."""
    import torch

    code = 1
    try:
        gc.freeze()  # to look for garbage among the parent's objects copies their pages
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        torch.set_num_threads(1)  # a fork has none of its parent's other threads
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
