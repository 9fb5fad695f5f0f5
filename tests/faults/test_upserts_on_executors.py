"""Upserts by the index of keys lose no row when an executor in a separate JVM is killed."""

import json
from pathlib import Path

import pytest

from tests.support.faults.drivers import driver
from tests.support.faults.upserts_child import BATCHES, KILLED_IN


@pytest.mark.timeout(600)
def test_the_table_and_the_index_are_correct_after_executors_were_killed(tmp_path: Path) -> None:
    with driver("tests.support.faults.upserts_child", environment={}, log=tmp_path / "log") as running:
        running.tell(str(tmp_path))
        result = json.loads(running.hear())
    assert result["differ"] == 0
    assert result["rows"] == result["expected"]
    assert result["merged"] == [None] * BATCHES
    assert result["notes"] == []
    assert result["processes"] >= 2 + len(KILLED_IN)
