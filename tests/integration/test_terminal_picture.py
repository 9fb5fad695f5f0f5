"""The picture of README.md: a real feed in a real terminal; ``make screenshots`` writes it to docs/images."""

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed_encode.encode import to_records
from lakefeed_local.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed_local.produce.write import produce
from lakefeed_local.stack import Endpoints
from tests.support.feed import Feed
from tests.support.screen_picture import screen_svg
from tests.support.terminal import terminal

FOLDER = "LAKEFEED_SCREENSHOTS"
TRIPS, A_BATCH = 900_000, 100_000
WIDTH, HEIGHT = 140, 22


@pytest.mark.slow
def test_the_picture_of_a_run_in_a_terminal_is_drawn(
    stack: Endpoints, lake: SparkSession, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.name = "taxi"
    topic = "taxi-rides"
    Topics(stack.bootstrap_servers).create(topic, partitions=4)
    rows = taxi_rows(lake, TRIPS)
    records = to_records(rows, topic=topic, registry=stack.schema_registry_url, schema=taxi_schema(), key=KEY)
    produce(records, topic, bootstrap_servers=stack.bootstrap_servers)
    kafka = {"bootstrap_servers": stack.bootstrap_servers, "topics": [topic], "max_records_per_batch": A_BATCH}
    file = feed.write_file(
        source={"kafka": kafka},
        sink={"iceberg": {"table": "lake.nyc.taxi_rides"}},
        expect={"within_town": {"rule": "trip_distance < 25.9", "on_violation": "dead_letter"}},
        dead_letters={"table": "lake.nyc.taxi_rides_dead_letters"},
    )
    environment = {**feed.environment, "LAKEFEED_HOME": str(tmp_path / "home"), "COLORTERM": "truecolor"}
    # Use a relative path for the log, so that the picture shows no path of this machine.
    monkeypatch.chdir(tmp_path)
    arguments = ["run", str(file), "--log-file", "taxi.log"]
    with terminal(arguments, environment=environment, width=WIDTH, height=HEIGHT) as shown:
        screen = shown.until(lambda text: "batch 5 ·" in text and "has run for" in text, seconds=240)
        picture = screen_svg(shown.screen, title="lakefeed run taxi.yaml")
        shown.process.send_signal(signal.SIGINT)
        shown.process.wait(120)
    assert "records/s" in screen
    assert "taxi" in picture
    assert str(tmp_path) not in picture
    assert "http" not in picture.replace("http://www.w3.org", "")
    target = Path(os.environ.get(FOLDER, tmp_path)) / "terminal-run.svg"
    target.write_text(picture, "utf-8")
    assert target.stat().st_size < 60_000
