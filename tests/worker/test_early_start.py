"""A child that imports before it is asked: who gets it, and what becomes of it otherwise."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.commands.forking import COMPILED
from kernelwright.worker.process.client import Client, Raised
from kernelwright.worker.process.early_start import begun_early, client_of
from kernelwright.worker.process.requests import Role
from kernelwright.worker.sandbox.confining import Confinement

_TELLS = """
import os
from pathlib import Path
Path(__file__).with_name(f"imported-{os.getpid()}").touch()
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder with a module that leaves a file where it is imported."""
    (tmp_path / "tells.py").write_text(_TELLS)
    return tmp_path


@pytest.fixture
def environment(modules: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), *sys.path])}


def importers(modules: Path) -> Iterator[Path]:
    return modules.glob("imported-*")


def answer_of(client: Client) -> object:
    client.post("start", {"nothing": "of use"})
    return client.wait(60.0)


def test_the_first_one_of_that_name_has_imported(
    modules: Path, environment: dict[str, str]
) -> None:
    with begun_early("test", environment, ("absent_module", "tells")):
        first = client_of("test", dict(environment), Confinement())
        assert isinstance(answer_of(first), Raised)  # it is there, and misses what it needs
        assert len(list(importers(modules))) == 1
        second = client_of("test", environment, Confinement())
        assert isinstance(answer_of(second), Raised)
        assert len(list(importers(modules))) == 1
        for client in (first, second):
            client.close()


@pytest.mark.parametrize("other", ["name", "environment", "confinement"])
def test_another_one_does_not_get_it_and_it_ends_with_the_block(
    modules: Path, environment: dict[str, str], other: str
) -> None:
    with begun_early("test", environment, ("tells",)):
        client = client_of(
            "another" if other == "name" else "test",
            {**environment, "OF": "another"} if other == "environment" else environment,
            Confinement(processes=7) if other == "confinement" else Confinement(),
        )
        assert isinstance(answer_of(client), Raised)
        client.close()
    imported = [int(it.name.removeprefix("imported-")) for it in importers(modules)]
    assert not any(Path(f"/proc/{number}").exists() for number in imported)


def test_the_command_begins_the_one_that_compiles() -> None:
    assert Role.COMPILED.value == COMPILED
