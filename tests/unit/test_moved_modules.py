"""Documented modules that have moved import under their old names for one release, with a warning."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lakefeed


def test_old_names_import_the_moved_modules_and_warn() -> None:
    code = """
import importlib, warnings
import lakefeed
for old, moved in sorted(lakefeed._MOVED.items()):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        module = importlib.import_module(old)
    assert [w.category for w in seen if f"{old} has moved to" in str(w.message)] == [DeprecationWarning], (old, seen)
    new = importlib.import_module(moved)
    public = [name for name in vars(new) if not name.startswith("_")]
    assert all(getattr(module, name) is getattr(new, name) for name in public), old
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_survey_is_the_old_name_of_status(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lakefeed.Pipeline.__new__(lakefeed.Pipeline)
    monkeypatch.setattr(lakefeed.Pipeline, "status", lambda _self, **options: options)
    with pytest.deprecated_call(match="Pipeline.status"):
        answer: object = pipeline.survey(log_file=None)
    assert answer == {"spark": None, "log_file": None}
