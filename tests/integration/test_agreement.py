"""All views of a feed show the same numbers: dashboard, metrics, lag, Kafka's own tools, the ledger and the table."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from lakefeed.ledger.outcomes import Counts
from tests.support.agreement import (
    Position,
    Positions,
    of_kafkas_tool,
    of_lag_command,
    of_ledger,
    of_metrics,
    of_progress,
    rows_by_partition,
)
from tests.support.cli import Running, lakefeed
from tests.support.drivers import driver
from tests.support.feed import JSON_ROWS, Feed, records, until
from tests.support.kafka_tools import commit_offsets, describe_group, lag_by_kafkatop, unpacked_kcat

POISON = b"not json"
COUNTS = ("records", "rows", "dead_letters", "requests")
METRICS = ("records_read", "rows_written", "dead_letters", "s3_requests")


@pytest.fixture
def environment(feed: Feed, tmp_path: Path) -> dict[str, str]:
    return {**feed.environment, "LAKEFEED_HOME": str(tmp_path / "home")}


def _sum(families: Iterable[Metric], name: str) -> float:
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if not {"sink", "reason"} & set(sample.labels))


def test_all_views_of_a_feed_agree_when_it_waits_is_paused_or_lags(
    feed: Feed, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The topic has undecodable records, records that an expectation drops, null values, and finally unread records."""
    feed.create_topic(partitions=2)
    feed.send([*records(300), *[POISON] * 7], partition=0)
    feed.send([*records(40, first=1000), *[None] * 5, POISON], partition=1)
    group, letters = f"{feed.name}-group", f"lake.{feed.name}.letters"
    commit_offsets(feed.stack.bootstrap_servers, group, {(feed.topic, 0): 0})
    blocks: dict[str, Any] = {
        "source": feed.source(max_records_per_batch=150, monitoring_group=group),
        "decode": {**JSON_ROWS, "on_null": "skip"},
        "expect": {"not_ten": {"rule": "id % 10 <> 0", "on_violation": "drop"}},
        "dead_letters": {"table": letters},
    }
    path, pipeline = feed.write_file(**blocks), feed.pipeline(**blocks)
    first, second = (feed.topic, 0), (feed.topic, 1)
    at_rest = {first: Position(307, 307), second: Position(46, 46)}
    expected = {first: Counts(307, 7, 30), second: Counts(46, 1, 9)}

    with driver(path, environment, tmp_path / "log") as ask:
        own = f"/api/feeds/{feed.name}"

        def progress() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(ask(f"{own}/progress"))
            return found

        def all_agree(expected: Positions) -> None:
            """Check that dashboard, endpoint, metrics, lag of feed and group, and Kafka's tool show these positions."""
            assert of_progress(progress()) == of_progress(json.loads(ask("/progress"))) == expected
            [row] = json.loads(ask("/api/feeds"))["feeds"]
            assert row["lag"] == sum(position.lag for position in expected.values())
            assert of_metrics(ask("/metrics"), feed)[0] == expected
            assert of_lag_command(feed, str(path)) == expected
            assert of_lag_command(feed, str(path), "--group", group) == expected
            assert of_kafkas_tool(feed, group) == expected

        until(lambda: progress()["totals"]["records"] == 353 and progress()["state"] == "waiting")
        all_agree(at_rest)
        ends, counts = of_ledger(pipeline)
        assert ends == {key: position.committed for key, position in at_rest.items()}
        assert counts == expected
        assert rows_by_partition(feed) == {key: count.rows for key, count in expected.items()}
        assert rows_by_partition(feed, letters) == {key: count.dead_letters for key, count in expected.items()}
        total = expected[first] + expected[second]
        totals = progress()["totals"]
        assert (totals["records"], totals["rows"]) == (total.records, total.rows)
        assert (totals["dead_letters"], totals["skipped"]) == (total.dead_letters, total.skipped)
        points = json.loads(ask(f"{own}/history?since=0&most=2000"))["points"]
        _, metrics = of_metrics(ask("/metrics"), feed)
        names = {
            "batches": "lakefeed_batches_total",
            "records": "lakefeed_records_read_total",
            "rows": "lakefeed_rows_written_total",
            "dead_letters": "lakefeed_dead_letters_total",
            "skipped": "lakefeed_records_skipped_total",
        }
        for name, metric in names.items():
            assert sum(point[name] for point in points) == totals[name] == metrics[metric]

        lakefeed("feed", "pause", feed.name, "--wait", "--reason", "a test", environment=environment)
        feed.send(records(9), partition=0)
        paused = {first: Position(307, 316), second: Position(46, 46)}
        until(lambda: of_progress(progress()) == paused)
        all_agree(paused)
        assert of_ledger(pipeline) == (ends, counts)
        assert progress()["paused"]["reason"] == "a test"
        lakefeed("feed", "resume", feed.name, environment=environment)
        caught_up = {first: Position(316, 316), second: Position(46, 46)}
        until(lambda: of_progress(progress()) == caught_up)
        all_agree(caught_up)
        ends, counts = of_ledger(pipeline)

    feed.send([*records(20), POISON], partition=1)
    behind = {first: Position(316, 316), second: Position(46, 67)}
    assert of_lag_command(feed, str(path)) == behind
    assert of_lag_command(feed, str(path), "--group", group) == behind
    assert of_kafkas_tool(feed, group) == behind
    assert of_ledger(pipeline) == (ends, counts)
    status = json.loads(lakefeed("status", path, "--output", "json", environment=environment, status=None).stdout)
    assert of_progress(status["lag"]) == behind


def test_all_counts_of_an_upsert_feed_with_history_and_dead_letters_agree_after_a_kill(
    feed: Feed, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Sum the log lines of all batches, and compare the sums with status, API, metrics, result and the run's trace."""
    feed.create_topic(partitions=2)
    letters, history = f"lake.{feed.name}.letters", f"{feed.table}_history"
    keyed = {"table": feed.table, "mode": "upsert", "keys": ["id"], "history": history}
    path = feed.write_file(
        source=feed.source(max_records_per_batch=200),
        decode={**JSON_ROWS, "key": "string"},
        sink={"iceberg": keyed},
        sinks={"beside": {"iceberg": {"table": f"{feed.table}_beside"}}},
        dead_letters={"table": letters},
    )
    feed.send([*records(150), *[POISON] * 7], partition=0)
    killed = Running(["run", path], environment, tmp_path / "killed")
    killed.wait_until_it_says("batch 0")
    killed.kill()
    # These records repeat keys of the first run, so they update its rows.
    feed.send([*records(90), POISON], partition=0)
    feed.send([*records(120, first=1000), POISON, *records(20, first=1000)], partition=1)
    log, name = tmp_path / "log", feed.name
    with driver(path, environment, log, "--output", "json") as ask:

        def progress() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(ask(f"/api/feeds/{name}/progress"))
            return found

        def newest() -> Any:
            return (progress()["last_batch"] or {"ranges": {}})["ranges"].get(feed.topic)

        until(lambda: newest() is not None and {key: span[1] for key, span in newest().items()} == {"0": 248, "1": 141})
        totals = progress()["totals"]
        points = json.loads(ask(f"/api/feeds/{name}/history?since=0&most=2000"))["points"]
        metrics = list(text_string_to_metric_families(ask("/metrics")))
        shown = lakefeed("status", path, "--output", "json", environment=environment, status=None).stdout
    lines, _, summary = log.read_text("utf-8").partition("\n{\n")
    events, end = [json.loads(line) for line in lines.splitlines() if line.startswith("{")], json.loads("{" + summary)
    batches = [event for event in events if event["event"] == "batch"]
    trace = json.loads(lakefeed("runs", "show", path, "--output", "json", environment=environment).stdout)
    assert totals["records"] >= 232
    assert totals["dead_letters"] >= 2
    assert totals["requests"] > 0
    found = {
        "the sum of the batches": [
            *(sum(batch[name] for batch in batches) for name in COUNTS[:-1]),
            sum(batch["requests"]["total"] for batch in batches),
        ],
        "status": [json.loads(shown)["progress"]["totals"][name] for name in COUNTS],
        "API, history": [sum(point[name] for point in points) for name in COUNTS],
        "metrics": [_sum(metrics, f"lakefeed_{name}_total") for name in METRICS],
        "the run's end": [end[name] for name in (*COUNTS[:-1], "batch_requests")],
        "its trace": [trace["totals"][name] for name in COUNTS],
    }
    assert found == {view: [totals[name] for name in COUNTS] for view in found}
    # The meter's total is the sum of the requests at the start and those of the batches.
    assert end["startup_requests"]["total"] + end["batch_requests"] == end["requests"]["total"]
    of_bucket = end["s3_requests"].pop("GetBucketVersioning", 0)
    assert sum(end["s3_requests"].values()) == end["requests"]["total"]
    assert of_bucket <= 1
    assert len(feed.rows(letters)) == 9


def test_other_tools_read_the_position_of_a_feed(feed: Feed, tmp_path: Path) -> None:
    """Kafka's own command, kcat and a lag monitor read the position after a killed run, and after the next run."""
    kcat = unpacked_kcat()
    feed.create_topic(partitions=2)
    feed.send(records(90), partition=0)
    group, servers = f"{feed.name}-group", feed.stack.bootstrap_servers
    commit_offsets(servers, group, {(feed.topic, 0): 0})
    path = feed.write_file(source=feed.source(monitoring_group=group), decode=JSON_ROWS)
    with Running(["run", path], feed.environment, tmp_path / "log") as running:
        running.wait_until_it_says("batch 0")
    feed.send(records(3), partition=0)
    feed.send(records(2), partition=1)
    assert {key[1]: (shown.committed, shown.lag) for key, shown in describe_group(servers, group).items()} == {
        0: (90, 3),
        1: (0, 2),
    }
    assert lag_by_kafkatop(servers, group) == {feed.topic: (2, 3)}
    # kcat reads as a member of the group and so advances the group's offsets. The feed ignores them, and overwrites
    # them after its next batch.
    assert [kcat.first_after_position(servers, group, feed.topic, part) for part in (0, 1)] == [90, 0]
    assert {key[1]: shown.committed for key, shown in describe_group(servers, group).items()} == {0: 91, 1: 1}
    lakefeed("run", path, "--once", environment=feed.environment)
    assert len(feed.rows()) == 95
    assert lag_by_kafkatop(servers, group) == {feed.topic: (0, 0)}
    assert {key[1]: shown.lag for key, shown in describe_group(servers, group).items()} == {0: 0, 1: 0}
    assert [kcat.first_after_position(servers, group, feed.topic, part) for part in (0, 1)] == [None, None]
