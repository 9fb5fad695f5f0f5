"""In a real Prometheus, the queries of lakefeed's dashboard have data, and lakefeed's alerts fire when expected."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from lakefeed.config.base import validated
from lakefeed.feed.progress import FinishedBatch, QueryState
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.ledger.outcomes import Reason
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.exposition import metrics_text
from lakefeed.monitor.metrics.table import FeedReading
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.endpoint import OwnFeed
from lakefeed_dashboard.merged_metrics import merged_text
from lakefeed_dashboard.server import serve
from lakefeed_dashboard.settings import Dashboard
from lakefeed_observe import metrics
from tests.support.servers.prometheus import prometheus, promtool

RULES = Path(metrics.__file__).with_name("rules.yml")
LABELS = 'feed="taxi", job="lakefeed", instance="etl-1:8443"'
HEALTHY = {
    "lakefeed_feed_up": "1",
    'lakefeed_feed_state{state="waiting"}': "1",
    'lakefeed_feed_state{state="failed"}': "0",
    "lakefeed_feed_hangs": "0",
    "lakefeed_feed_paused": "0",
    "lakefeed_start_timestamp_seconds": "0",
    "lakefeed_lag_offsets": "0",
    "lakefeed_lag_seconds": "0",
    "lakefeed_errors_total": "0",
    "lakefeed_records_read_total": "0+100",
    "lakefeed_failed_audits_total": "0",
    "lakefeed_dead_letters_total": "0",
    "lakefeed_batches_over_s3_budget_total": "0",
}
# Each alert has series that make it fire, and the minute by which it has fired.
FIRING: dict[str, tuple[dict[str, str], int]] = {
    "LakefeedTargetDown": ({'up{job="lakefeed"}': "1 0x60"}, 5),
    "LakefeedDriverDown": ({"lakefeed_feed_up": "1 0x60"}, 5),
    "LakefeedFeedGone": (dict.fromkeys(HEALTHY, "stale"), 10),
    "LakefeedHangs": ({"lakefeed_feed_hangs": "0 1x60"}, 5),
    "LakefeedFailed": ({'lakefeed_feed_state{state="failed"}': "0 1x60"}, 5),
    "LakefeedNoCommit": ({"lakefeed_lag_offsets": "5x60"}, 30),
    "LakefeedLag": ({"lakefeed_lag_seconds": "400x60"}, 15),
    "LakefeedErrors": ({"lakefeed_errors_total": "0x5 1x60"}, 10),
    "LakefeedAuditFailed": ({"lakefeed_failed_audits_total": "0x5 1x60"}, 10),
    "LakefeedDeadLetters": ({"lakefeed_dead_letters_total": "0+2x60"}, 15),
    "LakefeedPaused": ({"lakefeed_feed_paused": "1x90"}, 65),
    "LakefeedSinkWaits": ({'lakefeed_sink_paused{sink="archive"}': "1x60"}, 15),
    "LakefeedOverS3Budget": ({"lakefeed_batches_over_s3_budget_total": "0x5 3x60"}, 10),
}


def series(changes: dict[str, str]) -> list[dict[str, str]]:
    """Return the series of a healthy feed, with these changes."""
    found = []
    for name, values in {**HEALTHY, **changes}.items():
        bare, _, more = name.removesuffix("}").partition("{")
        labels = ", ".join(part for part in (LABELS if bare != "up" else 'instance="etl-1:8443"', more) if part)
        steady = "1x3 stale" if values == "stale" else values if "x" in values else f"{values}x120"
        found.append({"series": f"{bare}{{{labels}}}", "values": steady})
    return found


def expected(alert: str) -> list[dict[str, Any]]:
    [rule] = [rule for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"] if rule["alert"] == alert]
    labels = {"feed": "taxi", "job": "lakefeed", "instance": "etl-1:8443", **rule["labels"]}
    more = {"LakefeedFailed": {"state": "failed"}, "LakefeedSinkWaits": {"sink": "archive"}}
    if alert in ("LakefeedFeedGone", "LakefeedTargetDown"):
        labels = {"feed": "taxi"} if alert == "LakefeedFeedGone" else {"job": "lakefeed", "instance": "etl-1:8443"}
        labels |= rule["labels"]
    return [{"exp_labels": {**labels, **more.get(alert, {})}}]


def test_each_alert_fires_only_for_its_own_series(tmp_path: Path) -> None:
    promtool("check", "rules", RULES)
    alerts = [rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]]
    assert set(alerts) == set(FIRING)
    quiet = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for name in alerts for minute in (1, 30, 90)
    ]
    tests: list[dict[str, Any]] = [{"interval": "1m", "input_series": series({}), "alert_rule_test": quiet}]
    for name, (changes, minute) in FIRING.items():
        checks: list[dict[str, Any]] = [{"eval_time": "0m", "alertname": name, "exp_alerts": []}]
        checks += [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected(name)}]
        tests.append({"interval": "1m", "input_series": series(changes), "alert_rule_test": checks})
    paused = {"lakefeed_lag_offsets": "5x60", "lakefeed_feed_paused": "1x60"}
    ended = dict.fromkeys(HEALTHY, "stale") | {name: "0x3 stale" for name in HEALTHY if "state=" in name}
    ended['lakefeed_feed_state{state="ended"}'] = "1x3 stale"
    for changes, name in ((paused, "LakefeedNoCommit"), (ended, "LakefeedFeedGone")):
        check = {"eval_time": "30m", "alertname": name, "exp_alerts": []}
        tests.append({"interval": "1m", "input_series": series(changes), "alert_rule_test": [check]})
    document = {"rule_files": [str(without_texts(tmp_path))], "evaluation_interval": "1m", "tests": tests}
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", file)


def without_texts(folder: Path) -> Path:
    """Write a copy of the rules without annotations, which promtool would compare, too."""
    document = yaml.safe_load(RULES.read_text())
    for rule in document["groups"][0]["rules"]:
        del rule["annotations"]
    copy = folder / "rules.yml"
    copy.write_text(yaml.safe_dump(document))
    return copy


TOKEN = "viewers-token-of-these-tests-1234567890"


@contextmanager
def served(monitor: FeedMonitor) -> Iterator[str]:
    """Run a dashboard that requires a token; yield its host and port."""
    tokens = [{"name": "prometheus", "role": "viewer", "token": TOKEN}]
    settings = validated(Dashboard, "test", port=0, tokens=tokens)
    with serve(OwnFeed(monitor), settings) as url:
        yield urlsplit(url).netloc


def one_batch(monitor: FeedMonitor, number: int) -> None:
    """Report to the monitor a finished batch whose counts are all positive."""
    start = 10 * number
    with monitor.batch(number, [OffsetRange("trips", 0, start, start + 10)]):
        time.sleep(0.02)
    monitor.finish(
        FinishedBatch(
            batch_id=number,
            finished_at=time.time(),
            seconds=0.2,
            records=10,
            rows=8,
            offsets=10,
            lag=100,
            input_rate=50.0,
            dead_letters=1,
            skipped=1,
            reasons=(Reason("not JSON", 1),),
            phases={"plan": 0.05, "write": 0.1},
            requests=BatchRequests(total=9, bytes_out=900, bytes_in=90, by_class={"data": 9}, budget=8),
            state=QueryState(watermark="2026-11-20T06:30:00.000Z", rows=5, bytes=50, late_rows=1),
            schema_id=1,
        ),
        ends={("trips", 0): start + 110},
    )


@contextmanager
def busy() -> Iterator[FeedMonitor]:
    """Yield the monitor of a feed that finishes several batches a second, and always shows a running batch."""
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="iceberg lake.nyc.trips", fence=None, position=[OffsetRange("trips", 0, 0, 0)])
    monitor.observe_ends({("trips", 0): 0})
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.is_set():
            one_batch(monitor, number)
            monitor.tick()
            number += 1
            with monitor.batch(number, [OffsetRange("trips", 0, 10 * number, 10 * number + 10)]):
                stop.wait(0.3)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield monitor
    finally:
        stop.set()
        thread.join()


def test_a_real_prometheus_has_data_for_each_query_of_the_dashboard(tmp_path: Path) -> None:
    scrape: dict[str, Any] = {"job_name": "lakefeed", "authorization": {"credentials": TOKEN}}
    with busy() as monitor, served(monitor) as address:
        jobs: list[dict[str, Any]] = [
            {**scrape, "static_configs": [{"targets": [address]}]},
            {"job_name": "without-a-token", "static_configs": [{"targets": [address]}]},
        ]
        with prometheus(tmp_path, scrape=jobs, rules=RULES) as server:
            server.until("rate(lakefeed_records_read_total[5s]) > 0")
            queries = [
                target["expr"].replace("$__rate_interval", "5s").replace("$feed", ".*")
                for panel in json.loads(metrics.dashboard_text())["panels"]
                for target in panel.get("targets", ())
            ]
            for query in queries:
                server.until(query, seconds=15)
            assert len(queries) > 20

            [lag] = server.query("lakefeed_partition_lag_offsets")
            assert (lag["metric"]["topic"], lag["metric"]["partition"]) == ("trips", "0")
            before = monitor.snapshot().totals.records
            [records] = server.until(f"lakefeed_records_read_total >= {before}")
            assert before <= float(records["value"][1]) <= monitor.snapshot().totals.records
            health = {target["labels"]["job"]: target["health"] for target in server.ask("targets")["activeTargets"]}
            assert health == {"lakefeed": "up", "without-a-token": "down"}
            rules = server.ask("rules")["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} == {"ok"}
            server.until('ALERTS{alertname="LakefeedOverS3Budget", alertstate="firing"}', seconds=30)


def test_metric_names_and_help_texts_follow_the_conventions_of_prometheus() -> None:
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="iceberg", fence=None)
    one_batch(monitor, 0)
    gone = merged_text([metrics_text([FeedReading.of(monitor)]).body], down=["gone"])
    promtool("check", "metrics", stdin=gone.body)
