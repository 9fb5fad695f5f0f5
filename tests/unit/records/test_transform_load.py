"""A pipeline's Python modules are loaded from its folder, even if another pipeline has modules of the same names."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed.records.transform import load


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    yield
    for name in ("steps", "prices", "prices.rates"):
        sys.modules.pop(name, None)


def pipeline(folder: Path, says: str) -> Path:
    (folder / "prices").mkdir(parents=True)
    (folder / "prices" / "__init__.py").write_text("")
    (folder / "prices" / "rates.py").write_text(f"SAYS = {says!r}")
    (folder / "steps.py").write_text("from prices import rates\ndef say():\n    return rates.SAYS\n")
    return folder


def test_two_folders_may_have_modules_with_the_same_name(tmp_path: Path) -> None:
    one, other = pipeline(tmp_path / "one", "one"), pipeline(tmp_path / "other", "other")
    first = load("steps:say", where="transform", folder=one)
    assert first() == "one"
    assert load("steps:say", where="transform", folder=other)() == "other"
    assert first() == "one"
    assert load("prices.rates:SAYS", where="transform", folder=one) == "one"


def test_a_second_load_returns_the_same_function(tmp_path: Path) -> None:
    folder = pipeline(tmp_path / "one", "one")
    assert load("steps:say", where="transform", folder=folder) is load("steps:say", where="transform", folder=folder)


def test_a_module_in_the_folder_does_not_replace_a_library_that_is_already_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("dumps = None")
    assert load("json:dumps", where="transform", folder=tmp_path) is json.dumps
    assert sys.modules["json"] is json
