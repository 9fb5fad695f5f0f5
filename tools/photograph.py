"""Run an example, check that its dashboard's panels change while records arrive, and photograph the page."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.pipeline import Pipeline
from lakefeed_local.part import choose_free
from tests.support.browser import headless_browser, tab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 90.0


def photograph(file: Path, spark: SparkSession, *, picture: Path, send: Callable[[], None], number: str) -> int:
    """Write the picture; return the growth of the sum of the column ``number`` in the first panel.

    Args:
        send: a function that sends further records.

    Raises:
        NoBrowser: there is no browser, and none can be installed.
    """
    port = choose_free(avoid=())
    pipeline = Pipeline.from_file(file, overrides=[f"dashboard.port={port}"])
    name, page_url = pipeline.config.name, f"http://127.0.0.1:{port}"
    monitor, stop = FeedMonitor(name), threading.Event()
    with headless_browser() as opened:
        url = f"{page_url}/api/feeds/{name}/panels"
        run = threading.Thread(target=lambda: pipeline.run(spark=spark, stop=stop, monitor=monitor))
        run.start()
        try:
            before = _until(lambda: sum(_values(url, number)))
            with tab(opened, page_url) as looked:
                page = looked.open(f"/#/feed/{name}/panels")
                page.wait_for_selector("svg.map circle")
                send()
                after = _until(lambda: (total := sum(_values(url, number))) > before and total)
                page.wait_for_function(
                    "sum => document.body.innerText.includes(sum)", arg=str(max(_values(url, number)))
                )
                picture.parent.mkdir(parents=True, exist_ok=True)
                page.screenshot(path=picture, full_page=True)
        finally:
            stop.set()
            run.join(SECONDS)
    return after - before


def _values(url: str, number: str) -> list[int]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        panel: dict[str, Any] = json.load(answer)["panels"][0]
    if panel["error"] is not None and not panel["error"].startswith("the table or view"):
        raise AssertionError(panel["error"])
    at = panel["columns"].index(number) if panel["columns"] else 0
    return [row[at] for row in panel["rows"]]


def _until(read: Callable[[], int | bool]) -> int:
    """Call ``read`` until its result is true, and return the result."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with suppress(URLError):  # The run's server may not have started yet.
            if value := read():
                return int(value)
        time.sleep(0.5)
    raise AssertionError(f"the panels did not change within {SECONDS:.0f} s")
