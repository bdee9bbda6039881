"""The generated pages of docs/ are what the code says; `pytest --update-golden` rewrites them."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import kernelwright
from kernelwright import env
from kernelwright.errors import render_errors_table
from kernelwright.report.schema import render_verdict_page

DOCS = Path(__file__).parents[1] / "docs"

SETTINGS = "# Settings\n\nEnvironment variables, ours first, then those of others that we read.\n\n"
ERRORS = (
    "# Errors\n\nEvery way in which kernelwright says no. A message names the thing, the line of "
    "your file\nwhere there is one, and the next step; `--json` prints the same as JSON.\n\n"
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
    }


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
