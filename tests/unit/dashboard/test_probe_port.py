"""The port of ``lakefeed run --probe-port``: probes and metrics for all callers, and nothing else."""

from __future__ import annotations

import httpx

from lakefeed.dashboard.driver import serve
from lakefeed.dashboard.own_feed import OwnFeed
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.reading import MetricSettings


def test_it_answers_probes_and_scrapes_without_a_login_and_no_other_request() -> None:
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="iceberg lake.nyc.trips", fence=None)
    feed = OwnFeed(monitor, settings=MetricSettings(no_commit_seconds=600.0))
    with serve(feed, probe_port=0) as served:
        assert served.probe_port
        with httpx.Client(base_url=f"http://127.0.0.1:{served.probe_port}") as asking:
            # A kubelet names the pod by its address.
            for host in (f"127.0.0.1:{served.probe_port}", "10.1.2.3:8081", "localhost"):
                for path in ("/health/live", "/health/ready", "/health", "/metrics"):
                    assert asking.get(path, headers={"Host": host}).status_code == 200
            assert asking.get("/health/live", headers={"Host": "evil.example"}).status_code == 421
            for path in ("/", "/api/feeds", "/progress", "/history", "/login", "/static/app.js"):
                assert asking.get(path).status_code == 401
            for path in ("/health/live", "/metrics", "/api/feeds/taxi/actions"):
                assert asking.post(path, json={"action": "stop"}).status_code == 401
            assert "lakefeed_feed_up" in asking.get("/metrics").text
    monitor.ended(ValueError())
    with serve(feed, probe_port=0) as served:
        assert httpx.get(f"http://127.0.0.1:{served.probe_port}/health/live").status_code == 503
