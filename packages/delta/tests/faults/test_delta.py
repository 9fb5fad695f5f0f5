"""Of two drivers of a feed into a Delta table one commits, also if both write the same version of the log."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.s3 import configured_keys
from lakefeed.clients.spark.jvm import java
from lakefeed.config.connections import S3
from lakefeed.errors import ConfigError
from lakefeed_delta.store import require_conditional_writes
from lakefeed_local.stack import Endpoints
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.landed import Landing, assert_all_landed
from tests.support.faults.races import REPLACED, run_together, two_drivers
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed

WRITERS = 8


@pytest.mark.parametrize("place", ["disk", "store"])
def test_the_log_store_lets_one_of_many_writers_create_a_version(
    feed: Feed, lake: SparkSession, tmp_path: Path, place: str
) -> None:
    if place == "disk":
        feed.disk = tmp_path
        (tmp_path / "race" / "_delta_log").mkdir(parents=True)
    own: Any = lake
    conf = own._jsparkSession.sessionState().newHadoopConf()
    store = java(lake).delta.ExclusiveLogStore(conf)

    def write(path: Any, writer: int) -> str | None:
        line = own._jvm.java.util.List.of(f"writer {writer}").iterator()
        try:
            store.write(path, line, False, conf)
        except Exception as refused:
            return str(refused)
        return None

    with ThreadPoolExecutor(WRITERS) as pool:
        for version in range(5):
            path = own._jvm.org.apache.hadoop.fs.Path(feed.place(f"race/_delta_log/{version:020}.json"))
            refusals = list(pool.map(write, [path] * WRITERS, range(WRITERS)))
            winner = refusals.index(None)
            lost = [each for each in refusals if each is not None]
            assert len(lost) == WRITERS - 1
            assert all("java.nio.file.FileAlreadyExistsException" in each for each in lost)
            assert store.read(path, conf).next() == f"writer {winner}"


class Careless(BaseHTTPRequestHandler):
    """A store that ignores ``If-None-Match``."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_DELETE = do_PUT  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002


@pytest.fixture
def careless() -> Iterator[S3]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    keys = {"access_key": "a", "secret_key": "b"}
    yield S3.model_validate({"endpoint": f"http://127.0.0.1:{server.server_port}", **keys})
    server.shutdown()
    server.server_close()


def test_a_store_without_conditional_writes_is_refused(careless: S3, feed: Feed) -> None:
    with pytest.raises(ConfigError, match=r"does not honour If-None-Match.*\[200, 200\]"):
        require_conditional_writes("lake", "tables/probe", s3=careless, keys=configured_keys(careless))
    s3 = feed.connections.s3
    require_conditional_writes(feed.stack.bucket, "tables/probe", s3=s3, keys=configured_keys(s3))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [6])
def test_of_two_drivers_started_together_one_lands_each_record_once(
    stack: Endpoints, feed: Feed, tmp_path: Path, rounds: int
) -> None:
    work = Workload(feed)
    feed.create_topic(partitions=PARTITIONS)
    work.send(80)
    work.transaction(40, end="commit")
    with two_drivers({**stack.as_environment(), **SHORT_LIVED}, tmp_path) as both:
        for number in range(rounds):
            landing = Landing(Feed(stack, tmp_path), "delta", 70, topic=feed.topic)
            pauses = [{"write_batch": 2.0 * (number % 2), "commit_rows": 1.0}, {"commit_rows": 2.0}]
            errors = run_together(both, landing.write_file(), pauses, apart=0.3 * number)
            lost = [error for error in errors if error is not None]
            print(number, lost, flush=True)
            assert len(lost) < 2, lost
            assert all(REPLACED in error or "CheckpointInUse" in error for error in lost), lost
            assert_all_landed(landing, work)
