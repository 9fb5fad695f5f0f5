"""A finished batch gets its figures from Spark's report, the meter and the writer."""

import json
import math
from types import SimpleNamespace
from typing import Any, cast

from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.observer import QueryObserver
from lakefeed.feed.progress import batch_of
from lakefeed.feed.s3_requests import S3Requests
from lakefeed.ledger.outcomes import Counts, Reason
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange

REPORT = {
    "batchId": 3,
    "numInputRows": 1000,
    "inputRowsPerSecond": 250.0,
    "durationMs": {"triggerExecution": 2000, "addBatch": 1500, "walCommit": 100},
    "sources": [{"latestOffset": {"t": {"0": 150, "1": 60}}, "endOffset": {"t": {"0": 100, "1": 60}}}],
}
METER = (
    "PutObject\tdata\tlake/t\t4\t300\t0\t0\nUploadPart\tdata\tlake/t\t9\t900\t0\t0\n"
    "CompleteMultipartUpload\tdata\tlake/t\t1\t10\t0\t0\nPutObject\tmetadata\tlake/t\t2\t50\t0\t0\n"
)


def test_a_batch_has_the_figures_of_spark_the_meter_and_the_writer() -> None:
    reasons = (Reason("rare", 1, "x"), Reason("frequent", 9, "y" * 1_000_000))
    result = BatchResult(
        3, rows=990, replayed=False, counts=Counts(1000, 10), reasons=reasons, schema_id=7, notes=("a note",)
    )
    monitor = FeedMonitor("taxi")
    observer = QueryObserver(monitor, cast("Any", None), say=print)
    ranges = (OffsetRange("t", 0, 0, 100),)
    with observer.batch(3, ranges):
        monitor.stopwatch.seconds["write"] = 1.2
    plain = batch_of(REPORT, result, requests=S3Requests.parse(METER), request_budget=12)
    batch = observer.finish(REPORT, plain, is_ours=True)
    assert (batch.batch_id, batch.records, batch.rows, batch.lag, batch.seconds) == (3, 1000, 990, 50, 2.0)
    assert batch.seconds_left == 0.1
    assert (batch.input_rate, batch.processing_rate, batch.output_rate) == (250.0, 500.0, 495.0)
    assert batch.phases == {"write": 1.2, "add": 1.5, "log": 0.1}
    assert batch.requests is not None
    assert (batch.requests.total, batch.requests.data_files, batch.over_budget) == (16, 5, True)
    assert S3Requests(batch.requests.counts).calls["data"] == {
        "PutObject": 4,
        "UploadPart": 9,
        "CompleteMultipartUpload": 1,
    }
    assert [reason.reason for reason in batch.reasons] == ["frequent", "rare"]
    assert len(batch.reasons[0].sample) < 1000
    assert (batch.schema_id, batch.ranges, batch.notes) == (7, ranges, ("a note",))


def test_an_infinite_input_rate_is_unknown() -> None:
    report = {**REPORT, "inputRowsPerSecond": math.inf}
    observer = QueryObserver(FeedMonitor("taxi"), cast("Any", None), say=print)
    assert observer.finish(report, batch_of(report, None), is_ours=False).input_rate is None


def test_a_malformed_report_does_not_stop_the_feed() -> None:
    monitor = FeedMonitor("taxi")
    observer = QueryObserver(monitor, cast("Any", None), say=print)
    report = {**REPORT, "eventTime": "not a mapping", "sources": [{"latestOffset": {"t": {"0": 2**70}}}]}
    observer.finish(report, batch_of(REPORT, None), is_ours=False)
    assert [batch.batch_id for batch in monitor.batches()] == [3]


def test_a_batch_of_sparks_own_sink_counts_as_committed_up_to_its_end_offsets() -> None:
    monitor = FeedMonitor("taxi")
    QueryObserver(monitor, cast("Any", None), say=print).finish(REPORT, batch_of(REPORT, None), is_ours=False)
    snapshot = monitor.snapshot()
    assert {part.partition: (part.committed, part.end) for part in snapshot.partitions} == {0: (100, 150), 1: (60, 60)}
    assert snapshot.last_commit_at is not None


class _Report(dict[str, Any]):
    """A report as in ``StreamingQuery.lastProgress``."""

    @property
    def json(self) -> str:
        return json.dumps(self)


def test_an_idle_feed_shows_its_lag_and_its_rate() -> None:
    """After a restart without new records, Spark reports a trigger but no batch."""
    now = [1_800_000_000.0]
    monitor = FeedMonitor("f", clock=lambda: now[0])
    monitor.begin(sink="", fence=None, position=[OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 60)])
    assert (monitor.snapshot().lag, monitor.snapshot().rate) == (None, None)
    observer = QueryObserver(monitor, cast("Any", None), say=print)
    idle = {"batchId": 4, "durationMs": {"triggerExecution": 3}, "sources": REPORT["sources"]}
    query = SimpleNamespace(runId="r", lastProgress=_Report(idle))
    observer.follow(cast("Any", query))
    observer.observe_idle(cast("Any", query))
    now[0] += 61
    assert (monitor.snapshot().lag, monitor.snapshot().lag_seconds) == (60, None)
    assert monitor.snapshot().rate == 0.0
    # The idle trigger and the next batch have the same id.
    observer.take(json.dumps({**REPORT, "batchId": 4, "runId": "r"}))
    assert [report["batchId"] for report in observer.reports(3)] == [4]
    with monitor.batch(4, [OffsetRange("t", 0, 90, 150)]):
        assert monitor.snapshot().rate is None
