"""The path of a test shows what it tests: unit tests mirror the package, and helpers are in ``tests/support``."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_folder_of_unit_tests_is_a_folder_of_the_package() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")} - {Path("project")}
    assert {folder for folder in folders if not (ROOT / "src" / "lakefeed" / folder).is_dir()} == set()


def test_shared_helpers_are_only_in_tests_support() -> None:
    files = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")}
    helpers = {path for path in files if not path.name.startswith("test_") and path.name != "conftest.py"}
    # The folder tests/data is allowed, because it contains the script that has written the stored data.
    assert {path for path in helpers if path.parts[0] not in ("support", "data")} == set()
