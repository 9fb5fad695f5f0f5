"""Feeds for the dashboard's page, without a JVM: monitors with many batches, and details with hostile texts."""

import json
import math
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lakefeed.errors import Unreachable
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.json_model import iso
from lakefeed.ledger.outcomes import Reason
from lakefeed.ledger.pauses import Pause
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.endpoint import Document, OwnFeed
from lakefeed_dashboard.details.feed_details import costs_of
from lakefeed_dashboard.settings import Tariff
from lakefeed_dashboard.workers import DETAILS, FeedView

SCRIPT = "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken over'\">"
RIGHT_TO_LEFT = "\u202eتجربة\u202c עברית"
BATCH_SECONDS = 5.0
PHASES = {"plan": 0.05, "check": 0.02, "write": 0.7, "dead_letters": 0.03, "publish": 0.02, "log": 0.08}
ZIPS = (("10001", 40.7506, -73.9972), ("10451", 40.8203, -73.9239), ("11201", 40.6937, -73.9899))
PLACES = (*ZIPS, ("10301", 40.6316, -74.0927), ("11354", 40.7683, -73.8272), ("07302", 40.7196, -74.0463))


@dataclass
class ShownFeed:
    """A feed to which a test adds batches."""

    name: str = "taxi"
    partitions: int = 6
    rate: float = 110_000.0
    lag: int = 310_000
    seed: int = 1
    now: float | None = None
    topic: str = "trips"

    def __post_init__(self) -> None:
        self.monitor = FeedMonitor(self.name, clock=lambda: self.now or time.time())
        self._random = random.Random(self.seed)  # With a seed, a test draws the same batches in every run.
        self._batch = 0
        self._ends = {(self.topic, number): 1_000_000 for number in range(self.partitions)}

    def begin(self, *, sink: str = "iceberg lake.nyc.trips") -> None:
        spans = [OffsetRange(topic, number, 0, end) for (topic, number), end in self._ends.items()]
        self.monitor.begin(sink=sink, fence="7 d4c1f0a9be21", position=spans)
        self.monitor.control.open(threading.Event())
        self.monitor.tick()

    def add_batch(self, *, dead_letters: int = 0, note: str = "") -> FinishedBatch:
        """Add a batch that ends now."""
        wave = 1 + 0.18 * math.sin(self._batch / 9) + self._random.uniform(-0.06, 0.06)
        seconds = BATCH_SECONDS * self._random.uniform(0.7, 0.95)
        each = max(1, int(self.rate * BATCH_SECONDS * wave / self.partitions))
        spans = []
        for (topic, number), end in self._ends.items():
            spans.append(OffsetRange(topic, number, end, end + each))
        self._ends = {(span.topic, span.partition): span.end for span in spans}
        behind = max(0, int(self.lag * wave))
        shares = [self._random.uniform(0.2, 1.8) for _ in spans]
        ends = {
            (span.topic, span.partition): span.end + int(behind * share / sum(shares))
            for span, share in zip(spans, shares, strict=True)
        }
        with self.monitor.batch(self._batch, spans):
            pass
        records = each * len(spans)
        phases = {name: round(seconds * share * self._random.uniform(0.8, 1.1), 3) for name, share in PHASES.items()}
        reasons = [("not JSON", "not JSON: " + SCRIPT), ("the field id is missing", "the field id is missing")]
        batch = FinishedBatch(
            batch_id=self._batch,
            finished_at=self.now or time.time(),
            seconds=seconds,
            records=records,
            rows=records - dead_letters,
            offsets=records,
            input_rate=records / BATCH_SECONDS,
            lag=behind,
            dead_letters=dead_letters,
            reasons=tuple(Reason(text, dead_letters, sample) for text, sample in reasons[: bool(dead_letters)]),
            phases={**phases, "add": sum(phases.values())},
            requests=BatchRequests(
                total=17 + self._batch % 5,
                writes=11 + self._batch % 5,
                reads=6,
                bytes_out=records * 40,
                data_files=self.partitions,
                by_class={"data": self.partitions, "metadata": 7, "offsets": 2, "commits": 2},
                budget=40,
            ),
            ranges=tuple(spans),
            notes=(note,) if note else (),
        )
        self._batch += 1
        self.monitor.finish(batch, ends=ends)
        self.monitor.tick()
        return batch

    def fill(self, count: int, *, end: float) -> None:
        """Add `count` batches, the last of which ends at `end`."""
        for number in range(count):
            self.now = end - (count - number) * BATCH_SECONDS
            self.add_batch(dead_letters=12 if number % 20 == 7 else 0)
        self.now = end
        self.monitor.tick()
        self.now = None


class HostileDetails:
    """Details of a feed, with texts that a page must escape."""

    def __init__(self, monitor: FeedMonitor) -> None:
        self._monitor = monitor
        self.documents = {name: getattr(self, name.replace("-", "_")) for name in DETAILS}

    def graph(self) -> Document:
        rate = self._monitor.snapshot().rate or 0.0

        def node(name: str, kind: str, label: str, share: float) -> Document:
            return {"id": name, "label": label, "kind": kind, "rate": rate * share, "detail": f"{kind} {label}"}

        nodes = [
            node("a", "topic", "trips", 0.7),
            node("b", "topic", "trips-late", 0.3),
            node("decode", "decode", "avro", 1),
            node("expect", "expect", "3 rules", 1),
            node("dead", "dead_letters", "lake.nyc.trips_dead_letters", 0.001),
            node("zones", "table", "lake.nyc.zones", 0),
            node("step", "step", "with_zone", 1),
            node("sink", "sink", "lake.nyc.trips", 1),
            node("copy", "sink", f"copy: {SCRIPT}", 1),
        ]
        edges = ["a decode", "b decode", "decode expect", "expect dead", "expect step", "zones step", "step sink"]
        return {"nodes": nodes, "edges": [edge.split() for edge in [*edges, "step copy"]]}

    def table(self) -> Document:
        now = time.time()
        snapshots = [
            {
                "id": str(5_512_349_822_340_000_000 + number),
                "at": iso(now - (20 - number) * 5),
                "operation": "append",
                "added_files": 6,
                "added_rows": 500_000 + number,
                "deleted_rows": 0,
                "total_rows": 20_000_000 + 500_000 * number,
                "feed_batch": number,
            }
            for number in range(20)
        ]
        table = {
            "name": "lake.nyc.trips",
            "kind": "iceberg",
            "files": 1_204,
            "delete_files": 3,
            "bytes": 48_200_000_000,
        }
        more = {"rows": 20_499_672, "snapshot_count": 20, "snapshots": snapshots, "note": None, "error": None}
        return {"tables": [{**table, **more}], "left_out": 0, "taken_at": iso(now)}

    def schemas(self) -> Document:
        names = ["id", "pickup_at", "zone", "fare", SCRIPT]
        fields = [{"name": name, "type": "string", "nullable": name != "id"} for name in names]
        change = {"name": "fare", "before": {**fields[3], "type": "float"}, "after": {**fields[3], "type": "double"}}

        def schema(number: int, age: float, count: int, **changes: Any) -> Document:
            first = {"table": "lake.nyc.trips", "id": number, "current": number == 1, "at": iso(time.time() - age)}
            return {**first, "fields": fields[:count], "added": [], "removed": [], "changed": [], **changes}

        return {
            "schemas": [schema(0, 9e5, 4), schema(1, 4e4, 5, added=[fields[4]], changed=[change])],
            "writers": [{"id": 12, "at": iso(time.time()), "batch": 41}],
            "left_out": 0,
            "note": None,
            "error": None,
        }

    def dead_letters(self) -> Document:
        def sample(key: str | None, value: str | None, size: int, *, is_cut: bool = False) -> Document:
            content = {"key": key, "key_encoding": "text", "key_bytes": len(key or ""), "key_cut": False}
            shown = {"value": value, "value_encoding": "text", "value_bytes": size, "value_cut": is_cut}
            place = {"topic": "trips", "partition": 3, "offset": 9_870_021, "at": iso(time.time() - 40)}
            return {**place, **content, **shown}

        million = sample(SCRIPT, "x" * 1_000_000, 1_048_576, is_cut=True)
        long = json.dumps({f"column_{number}": number for number in range(100)})
        rules = ("17 is above 12", "18 is above 12")
        reasons = [
            {"reason": f"not JSON: {SCRIPT}", "count": 10, "samples": [million, sample(None, RIGHT_TO_LEFT, 30)]},
            {"reason": "the field id is missing", "count": 2, "samples": [sample("k\x00\x1b[31m", "", 0)]},
            {
                "reason": "# is above #",
                "count": 5,
                "samples": [{**sample("5", long, len(long)), "reason": reason} for reason in rules],
            },
        ]
        return {"reasons": reasons, "complete": True, "taken_at": iso(time.time()), "replayable": True, "error": None}

    def costs(self) -> Document:
        return costs_of(self._monitor, Tariff.of("aws-us-east-1"))

    def panels(self) -> Document:
        count = self._monitor.snapshot().totals.batches
        rows = [[name, lat, lon, (len(PLACES) - at) * 900 + 7 * count] for at, (name, lat, lon) in enumerate(PLACES)]
        hours = [[iso(1.7e9 + 3600 * hour), 300 + 40 * (hour % 7)] for hour in range(24)]
        taken: Document = {"taken_at": iso(time.time()), "truncated": False, "error": None}
        columns = ["zip", "lat", "lon", "hits"]
        on_map = {"lat": "lat", "lon": "lon", "y": ["hits"], "label": "zip"}

        def panel(name: str, title: str, chart: str, columns: list[str], rows: list[Any], **more: Any) -> Document:
            return {"name": name, "title": title, "chart": chart, "columns": columns, "rows": rows, **taken, **more}

        return {
            "panels": [
                panel("by_zip", "Hits per zip", "bar", columns, [*rows, [SCRIPT, None, None, 1]], x="zip", y=["hits"]),
                panel("map", "Hits on a map", "map", columns, [*rows, ["00000", None, None, 1]], **on_map),
                panel("hours", "Hits per hour", "line", ["hour", "hits"], hours),
                panel("t", "Users", "table", ["user", "n"], [[RIGHT_TO_LEFT, 3]]),
                panel("bad", "Broken", "table", [], [], error="no such view"),
            ]
        }


@dataclass
class ShownFeeds:
    feeds: list[ShownFeed]
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for feed in self.feeds:
            feed.monitor.documents.update(HostileDetails(feed.monitor).documents)
        self._views = {feed.name: OwnFeed(feed.monitor) for feed in self.feeds}

    def rows(self) -> Sequence[Document]:
        return [view.row() for view in self._views.values()]

    def find(self, name: str) -> FeedView | None:
        return self._views.get(name)

    def metrics(self, **_: Any) -> Any:
        raise NotImplementedError

    def health(self) -> tuple[bool, Document]:
        return True, {}

    def note(self, message: str, **details: Any) -> None:
        self.notes.append(message)


def shown_feed(name: str = "taxi", *, batches: int = 170, ended_ago: float = 0.0, **settings: Any) -> ShownFeed:
    """Return a feed that has committed `batches` batches."""
    end = time.time() - ended_ago
    feed = ShownFeed(name, now=end - (batches + 2) * BATCH_SECONDS, **settings)
    feed.begin(sink=f"iceberg lake.shop.{name.replace('-', '_')}")
    feed.fill(batches, end=end)
    return feed


def fifty_feeds() -> list[ShownFeed]:
    """Return 50 feeds: one is paused, one has failed, one hangs, the others run."""
    numbers = range(1, 50)
    feeds = [shown_feed()]
    feeds += [
        shown_feed(
            f"orders-{number:02}",
            batches=8,
            ended_ago=180.0 if number == 5 else 0.0,
            rate=1_000.0 * (number + 1),
            lag=310_000 // (number + 1),
            seed=number,
        )
        for number in numbers
    ]
    feeds[3].monitor.control.paused(Pause(reason="the table is repaired", by="anna", at=time.time() - 300))
    feeds[9].monitor.ended(Unreachable("no broker answers", where="kafka-1:9092", hint="check the network"))
    return feeds


def calm_feeds() -> list[ShownFeed]:
    """Return 12 feeds for pictures: one is paused, one has failed."""
    feeds = fifty_feeds()
    return [*feeds[:5], *feeds[6:13]]
