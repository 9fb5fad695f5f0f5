"""The metrics of several drivers are merged into one text."""

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from lakefeed.monitor.metrics.exposition import metrics_text
from lakefeed.monitor.metrics.table import FeedReading
from lakefeed_dashboard.merged_metrics import merged_text
from tests.unit.monitor.metrics.test_exposition import OPEN_METRICS, monitor_of, series


@pytest.mark.parametrize(("accept", "parse"), [("", parsed), (OPEN_METRICS, parsed_open_metrics)])
def test_the_texts_of_several_drivers_are_merged(accept: str, parse: Any) -> None:
    monitors = [monitor_of("taxi", topic='t"\\'), monitor_of("bikes")]
    readings = [FeedReading.of(monitor) for monitor in monitors]
    texts = [metrics_text([reading], accept=accept).body for reading in readings]
    merged = merged_text([*texts, texts[0]], down=["gone\n", "gone2"], accept=accept)
    found = series(parse(merged.body))
    assert merged.content_type == metrics_text([], accept=accept).content_type
    assert found[("lakefeed_feed_up", frozenset({("feed", "gone")}))] == 0
    alone = series(parse(metrics_text(readings, accept=accept).body))
    assert alone.items() <= found.items()
    assert len(found) == len(alone) + 2


def test_lines_of_a_driver_that_are_not_lakefeeds_metrics_are_left_out() -> None:
    text = metrics_text([FeedReading.of(monitor_of())]).body
    before = 'up{job="x"} 1\n# EOF\n# TYPE evil counter\nevil_total 1\n'
    after = 'lakefeed_lag_offsets{a="b} 1\n<script>\n'
    assert merged_text([before + text + after]).body == text
    assert merged_text(["x" * (16 * 1024 * 1024 + 1)]).body.strip() == ""
