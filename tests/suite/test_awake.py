"""Cards that stay ready while a suite runs."""

from contextlib import suppress
from pathlib import Path

from kernelwright.suite.awake import kept_awake


def open_files() -> set[str]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of this very folder
            found.add(str(link.readlink()))
    return found


def test_every_card_that_may_be_opened_is_open_meanwhile(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia2").symlink_to("absent")
    cards = {str(tmp_path / name) for name in ("nvidia0", "nvidia11")}
    with kept_awake(tmp_path):
        assert {file for file in open_files() if file.startswith(str(tmp_path))} == cards
    assert not cards & open_files()


def test_without_a_card_there_is_nothing_to_do(tmp_path: Path) -> None:
    before = open_files()
    with kept_awake(tmp_path):
        assert open_files() == before
