"""What README, docs and Makefile tell a stranger to type can be typed."""

from __future__ import annotations

import pytest

from tests.faults import test_sweep


def test_two_workers_of_one_run_draw_the_same_seeds_and_two_runs_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEED", raising=False)
    monkeypatch.setenv("SEEDS", "3")
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "one")
    drawn = test_sweep.seeds()
    assert len(set(drawn)) == 3
    assert test_sweep.seeds() == drawn
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "two")
    assert test_sweep.seeds() != drawn
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID")
    assert test_sweep.seeds() != test_sweep.seeds()
