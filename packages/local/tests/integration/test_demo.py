"""``lakefeed local demo`` lands trips in a table, and reports whether the table is correct."""

import json
from pathlib import Path

import pytest

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed_local.stack import Stack
from tests.support.cli import lakefeed

DATA = Path(__file__).parents[4] / "tests" / "data"


def test_the_demos_report_equals_the_table(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    try:
        done = lakefeed("local", "demo", "--rows", "30000", "--keep", "--home", home, "--output", "json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["verified"] is True
        assert report["produced"] == report["rows"] == 30_000
        assert report["dead_letters"] == 0
        assert report["found"] == report["expected"]
        assert report["found"]["distinct_keys"] == 30_000
        assert report["batches"] >= 1
        assert report["rows_per_second"] > 0
        assert report["s3_requests"] == sum(report["s3_requests_by_operation"].values()) > 0
        connections = Connections.from_environment(Stack(home).endpoints().as_environment())
        table = open_table(report["table"], connections=connections)
        assert table.scan().to_arrow().num_rows == 30_000
        assert len(list(table.scan().plan_files())) == report["files"]
        assert table.location().startswith(report["warehouse"])
    finally:
        Stack(home).down(erase=True)


@pytest.mark.slow
def test_the_demo_lands_the_rows_of_a_csv_file(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    rows = len((DATA / "trips.csv").read_text().splitlines()) - 1
    try:
        done = lakefeed("local", "demo", "--csv", DATA / "trips.csv", "--home", home)
        assert done.returncode == 0, done.stderr
        assert f"{rows:,} rows" in done.stdout
        assert "yes" in done.stdout
    finally:
        Stack(home).down(erase=True)
