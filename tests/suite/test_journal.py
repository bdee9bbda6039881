"""The journal: what is in it is done, whatever happened to its last line."""

from pathlib import Path

import pytest

from kernelwright.suite.journal import FILE, VERSION, Event, Journal, JournalError, read_journal

from .conftest import row_of


def begin(journal: Journal) -> None:
    journal.append(Event.RUN, version=VERSION, settings={"effort": "quick"}, provenance={})


def done(journal: Journal, problem: str, **changes: object) -> None:
    journal.append(Event.DONE, row=row_of(problem, **changes).to_json())


def test_rows_come_back_and_what_was_only_begun_is_unfinished(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        begin(journal)
        for name in ("b", "a", "c"):
            journal.append(Event.STARTED, problem=name)
        done(journal, "b")
        done(journal, "a", share_of_floor=0.5, lost={"eager": "no"})
    record = read_journal(tmp_path)
    assert record.settings == {"effort": "quick"}
    assert record.rows == (row_of("a", share_of_floor=0.5, lost={"eager": "no"}), row_of("b"))
    assert record.unfinished == ("c",)


def test_the_last_result_of_a_problem_counts(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        begin(journal)
        done(journal, "a", status="crashed")
        done(journal, "a")
    assert read_journal(tmp_path).rows == (row_of("a"),)


def test_a_torn_line_is_ignored_wherever_it_is_torn(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        begin(journal)
        done(journal, "a")
    path = tmp_path / FILE
    whole = path.read_bytes()
    with Journal(tmp_path) as journal:
        done(journal, "b")
    line = path.read_bytes()[len(whole) :]
    for length in (1, len(line) // 2, len(line) - 2):
        path.write_bytes(whole + line[:length])
        assert [row.problem for row in read_journal(tmp_path).rows] == ["a"]
        with Journal(tmp_path) as journal:
            done(journal, "c")
        assert [row.problem for row in read_journal(tmp_path).rows] == ["a", "c"]


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    with Journal(tmp_path) as first, Journal(tmp_path) as second:
        begin(first)
        for number in range(20):
            done((first, second)[number % 2], f"problem {number:02}")
    assert len(read_journal(tmp_path).rows) == 20


def test_no_journal_says_nothing(tmp_path: Path) -> None:
    record = read_journal(tmp_path / "nowhere")
    assert (record.rows, record.headers, record.settings) == ((), (), None)


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(Event.RUN, version=VERSION + 1, settings={}, provenance={})
    with pytest.raises(JournalError, match="version"):
        read_journal(tmp_path)
