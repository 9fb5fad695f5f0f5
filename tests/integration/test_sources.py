"""From sources other than Kafka, each row lands once; Spark's log of batches has the positions."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from tests.support.deaths import dying
from tests.support.feed import Feed

DDL = "zip STRING, isp STRING"


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    return Feed(stack, tmp_path)


def pipeline(feed: Feed, **blocks: Any) -> Pipeline:
    """Write and load a pipeline without a block ``decode``, because the source's rows are already decoded."""
    path = feed.write_file(**blocks)
    document = json.loads(path.read_text())
    del document["decode"]
    path.write_text(json.dumps(document))
    return Pipeline.from_file(path, environment=feed.environment)


def write(folder: Path, name: str, *zips: str) -> None:
    folder.mkdir(exist_ok=True)
    hidden = folder / f"_{name}"
    hidden.write_text("".join(json.dumps({"zip": each, "isp": "one"}) + "\n" for each in zips))
    hidden.rename(folder / name)


@pytest.mark.quick
def test_each_file_is_read_once_and_a_start_without_the_checkpoint_is_refused(
    feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    coming = feed.folder / "coming"
    source = {"files": {"path": f"file:{coming}", "format": "json", "schema_ddl": DDL}}
    write(coming, "a.json", "8001", "3011")
    job = pipeline(feed, source=source, transform={"sql": f"SELECT zip FROM {feed.name} WHERE zip > '4'"})
    job.run(spark=lake, once=True)

    write(coming, "b.json", "6003")
    with monkeypatch.context() as crash:
        dying(crash)
        with pytest.raises(LakefeedError):
            job.run(spark=lake, once=True)
    write(coming, "c.json", "7000")
    summary = job.run(spark=lake, once=True)
    assert summary.batches == 1
    assert sorted(each["zip"] for each in feed.rows()) == ["6003", "7000", "8001"]

    restarted = pipeline(feed, source=source, checkpoint=f"{feed.checkpoint}-2")
    with pytest.raises(CheckpointMismatch, match="the position in a source without offsets"):
        restarted.run(spark=lake, once=True)
    with pytest.raises(ConfigError, match="needs the offsets of Kafka topics"):
        job.verify()


@pytest.mark.quick
def test_rows_appended_to_a_source_table_reach_the_sink_table(feed: Feed, lake: SparkSession) -> None:
    origin = f"lake.{feed.name}.origin"
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{feed.name}")
    lake.sql(f"CREATE TABLE {origin} (zip STRING, hits INT) USING iceberg")
    grouped = f"SELECT zip, sum(hits) AS hits FROM {feed.name} GROUP BY zip"
    job = pipeline(
        feed,
        source={"iceberg": {"table": origin}},
        transform={"sql": grouped, "output_mode": "update"},
        sink={"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["zip"]}},
    )
    for values in ("('8001', 1), ('3011', 2)", "('8001', 4)"):
        lake.sql(f"INSERT INTO {origin} VALUES {values}")
        job.run(spark=lake, once=True)
    assert {each["zip"]: each["hits"] for each in feed.rows()} == {"8001": 5, "3011": 2}


@pytest.mark.quick
def test_a_streaming_format_of_spark_can_be_a_source(feed: Feed, lake: SparkSession) -> None:
    stop, monitor = threading.Event(), FeedMonitor(feed.name)
    shown: list[str] = []
    monitor.show_path = shown.append
    source = {"format": {"name": "rate-micro-batch", "options": {"rowsPerBatch": "5"}}}
    job = pipeline(feed, source=source)
    job.run(spark=lake, stop=stop, on_batch=lambda batch: stop.set() if batch.batch_id >= 1 else None, monitor=monitor)
    [path] = shown
    assert "Spark's source (the source is not Kafka)" in path
    found = sorted(each["value"] for each in feed.rows())
    assert len(found) >= 10
    assert found == list(range(len(found)))


@pytest.fixture
def lines() -> Iterator[tuple[int, Callable[[str], None]]]:
    """Yield a server's port, and a function that sends a line to all connected clients."""
    said = threading.Condition()
    texts: list[str] = []

    class Saying(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            at = 0
            while True:
                with said:
                    said.wait_for(lambda at=at: len(texts) > at)  # type: ignore[misc]
                    line = texts[at]
                if line == "":
                    return
                self.request.sendall(f"{line}\n".encode())
                at += 1

    def say(line: str) -> None:
        with said:
            texts.append(line)
            said.notify_all()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Saying) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], say
        say("")
        server.shutdown()


def test_words_from_a_socket_are_counted(
    feed: Feed, lake: SparkSession, lines: tuple[int, Callable[[str], None]]
) -> None:
    port, say = lines
    stop = threading.Event()
    each_word = f"SELECT explode(split(value, ' ')) AS word FROM {feed.name}"
    words = f"SELECT word, count(*) AS count FROM ({each_word}) GROUP BY word"
    job = pipeline(
        feed,
        source={"socket": {"host": "127.0.0.1", "port": port}},
        transform={"sql": words, "output_mode": "complete"},
        sink={"memory": {"view": f"words_{feed.name}"}},
        checkpoint="",
    )
    say("a b a")
    said = [False]

    def watch(_: Any) -> None:
        if not said[0]:
            said[0] = True
            say("b c")
        found = {each.word: each["count"] for each in lake.table(f"words_{feed.name}").collect()}
        if found == {"a": 2, "b": 2, "c": 1}:
            stop.set()

    job.run(spark=lake, stop=stop, on_batch=watch)
    assert stop.is_set()


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"dead_letters": {"table": "lake.a.b"}}, "dead_letters is for records of topics and streams"),
        (
            {"sink": {"iceberg": {"table": "lake.a.b", "mode": "upsert", "keys": ["zip"]}}},
            "rows of rate have no offset",
        ),
        ({"source": {"files": {"path": "/x", "format": "csv"}}}, "requires schema_ddl"),
        ({"source": {"files": {"path": "/x", "format": "text", "done": "archive"}}}, "archive belong together"),
    ],
)
def test_settings_of_kafka_are_refused_for_other_sources(feed: Feed, blocks: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pipeline(feed, **{"source": {"rate": {}}, **blocks})
