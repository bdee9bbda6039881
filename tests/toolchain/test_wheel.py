"""The wheel carries what is not Python too: device code, templates, the emulator's sources."""

import zipfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_package_data_is_in_the_wheel(tmp_path: Path) -> None:
    # Here, so that a GPU machine can collect the tests without the packaging tools.
    from hatchling.builders.wheel import WheelBuilder

    package = _ROOT / "src" / "kernelwright"
    # What has a header's name or none at all (`<cub/cub.cuh>`, `<cstdint>`): all but byte code.
    wanted = {
        str(path.relative_to(_ROOT / "src"))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in wanted} >= {".py", ".cuh", ".typed"}

    (wheel,) = WheelBuilder(str(_ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        (entry_points,) = (name for name in packed if name.endswith("entry_points.txt"))
        assert b"kernelwright = kernelwright.cli:script" in archive.read(entry_points)
    assert wanted - packed == set()
    assert not any(name.startswith(("tests/", "examples/")) for name in packed)
