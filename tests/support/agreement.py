"""Read the positions of an idle feed from all views of the feed, in one form that tests compare."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.ledger.outcomes import Counts
from lakefeed.offsets.ranges import Partition
from lakefeed.pipeline import Pipeline
from tests.support.cli import lakefeed
from tests.support.feed import Feed
from tests.support.kafka_tools import describe_group


@dataclass(frozen=True)
class Position:
    """The committed offset of a feed in a partition, and the partition's end offset."""

    committed: int
    end: int

    @property
    def lag(self) -> int:
        return self.end - self.committed


Positions = dict[Partition, Position]


def of_progress(document: Mapping[str, Any]) -> Positions:
    """Return the positions in progress JSON: of ``GET /progress``, the dashboard's API or ``lakefeed status``."""
    found = {}
    for part in document["partitions"]:
        position = Position(part["committed"], part["end"])
        assert position.lag == part["lag"], part
        found[part["topic"], part["partition"]] = position
    assert document["lag"] == sum(position.lag for position in found.values())
    return found


def of_metrics(text: str, feed: Feed) -> tuple[Positions, dict[str, float]]:
    """Parse ``/metrics`` with Prometheus' parser; return the positions, and the metrics with the one label ``feed``."""
    committed: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    lags: dict[Partition, int] = {}
    parts = {
        "lakefeed_partition_committed_offset": committed,
        "lakefeed_partition_end_offset": ends,
        "lakefeed_partition_lag_offsets": lags,
    }
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.get("feed") == feed.name, sample
            if sample.name in parts:
                parts[sample.name][sample.labels["topic"], int(sample.labels["partition"])] = int(sample.value)
            elif set(sample.labels) == {"feed"}:
                values[sample.name] = sample.value
    found = {key: Position(committed[key], ends[key]) for key in committed}
    assert {key: position.lag for key, position in found.items()} == lags
    return found, values


def of_lag_command(feed: Feed, *arguments: str) -> Positions:
    """Return the positions that ``lakefeed status`` prints, run as a separate process."""
    done = lakefeed("status", *arguments, "--output", "json", environment=feed.environment, status=None)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # The status is 1, because the feed does not run.
    found = json.loads(done.stdout)
    return of_progress(found if "kind" in found else found["lag"])


def of_kafkas_tool(feed: Feed, group: str) -> Positions:
    """Return the positions that ``kafka-consumer-groups --describe`` prints."""
    found = {}
    for key, shown in describe_group(feed.stack.bootstrap_servers, group).items():
        assert shown.committed is not None
        assert shown.end is not None
        found[key] = Position(shown.committed, shown.end)
        assert shown.lag == found[key].lag
    return found


def of_ledger(pipeline: Pipeline) -> tuple[dict[Partition, int], dict[Partition, Counts]]:
    """Return the end offsets and the summed counts of all commits; read the snapshots without lakefeed's ledger."""
    ends: dict[Partition, int] = {}
    counts: dict[Partition, Counts] = {}
    table = open_table(pipeline.config.sink.ledger_table, connections=pipeline.connections)
    for snapshot in table.snapshots():
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if "lakefeed.feed" not in summary:
            continue
        for topic, entry in json.loads(summary["lakefeed.ranges"]).items():
            for number, (_, end) in entry["ranges"].items():
                ends[topic, int(number)] = max(end, ends.get((topic, int(number)), 0))
        for topic, partitions in json.loads(summary["lakefeed.counts"]).items():
            for number, three in partitions.items():
                key = (topic, int(number))
                counts[key] = counts.get(key, Counts()) + Counts(*three)
    return ends, counts


def rows_by_partition(feed: Feed, table: str | None = None) -> Counter[Partition]:
    """Count rows of a feed's table or dead-letter table by source partition; fail if two rows have the same offset."""
    prefix = "kafka_" if table is None else ""
    names = [f"{prefix}{name}" for name in ("topic", "partition", "offset")]
    rows = [tuple(row[name] for name in names) for row in feed.rows(table)]
    assert len(rows) == len(set(rows))
    return Counter((topic, partition) for topic, partition, _ in rows)
