"""A run from its folder."""

from pathlib import Path

import pytest

from kernelwright.suite.journal import VERSION, Event, Journal, JournalError
from kernelwright.suite.reading import read_run


def test_a_run_that_was_continued_names_every_commit(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for problems, commit in ((7, "abc1234"), (9, "abc1234"), (3, "def5678")):
            facts = {"problems": problems, "commit": commit}
            journal.append(Event.RUN, version=VERSION, settings={}, provenance=facts)
    assert read_run(tmp_path).facts == {"problems": 9, "commit": "abc1234, def5678"}


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no run"):
        read_run(tmp_path)
