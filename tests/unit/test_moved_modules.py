"""Documented modules that have moved import under their old names for one release, with a warning."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lakefeed


@pytest.mark.parametrize("old", sorted(lakefeed._MOVED))
def test_an_old_name_imports_the_moved_module_and_warns(old: str) -> None:
    code = f"""
import importlib, warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    old = importlib.import_module({old!r})
assert [w.category for w in seen if "moved to" in str(w.message)][-1:] == [DeprecationWarning], seen
new = importlib.import_module({lakefeed._MOVED[old]!r})
public = [name for name in vars(new) if not name.startswith("_")]
assert all(getattr(old, name) is getattr(new, name) for name in public)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_survey_is_the_old_name_of_status(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lakefeed.Pipeline.__new__(lakefeed.Pipeline)
    monkeypatch.setattr(lakefeed.Pipeline, "status", lambda _self, **options: options)
    with pytest.deprecated_call(match="Pipeline.status"):
        answer: object = pipeline.survey(log_file=None)
    assert answer == {"spark": None, "log_file": None}
