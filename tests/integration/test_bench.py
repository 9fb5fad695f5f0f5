"""The bench on a real MinIO: its referee and the JVM's meter agree to the last request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import lakefeed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_trace_and_meter_agree_exactly(tmp_path: Path) -> None:
    done = lakefeed(
        *("bench", "s3-requests", "--home", str(tmp_path / "bench"), "--rows", "6000", "--batches", "3"),
        *("--manager", "lakefeed", "--versioned", "--output", "json"),
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parquet, iceberg = json.loads(done.stdout)
    for case in (parquet, iceberg):
        assert case["meter_agrees"]
        assert case["complete"]
        assert case["rows"] == 6000
        assert case["batches"] == 3
        assert case["files"] == 30
        assert case["delete_markers"] == 0
        assert sum(case["calls"].values()) == case["total"]
        # Each entry of offsets and commits, each data file.
        assert case["calls"]["s3.PutObject"] >= 3 * 2 + 30
