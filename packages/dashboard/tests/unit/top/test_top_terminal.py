"""``lakefeed top`` runs in a real pseudo-terminal and reads the endpoints of drivers; some drivers hang."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.messages.text import json_line
from lakefeed.monitor.drivers import announced
from lakefeed.monitor.feed_monitor import FeedMonitor, this_driver
from lakefeed.offsets.ranges import OffsetRange
from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http
from tests.support.terminal import DOWN, ENTER, ESCAPE, terminal

HOSTILE = "evil\x1b]0;pwned\x07\x1b[2J\u202egnp.exe"
FEEDS, HANGING = 50, 5


def monitor_of(name: str, *, lag: int, batches: int = 8) -> FeedMonitor:
    """Return the monitor of a feed with a few batches."""
    monitor = FeedMonitor(name)
    monitor.begin(sink="iceberg lake.a.b", fence=None)
    now = time.time()
    for number in range(batches):
        ranges = (OffsetRange("t", 0, 100 * number, 100 * number + 100),)
        with monitor.batch(number, ranges):
            pass
        batch = FinishedBatch(
            batch_id=number,
            finished_at=now - batches + number,
            seconds=0.5,
            records=100 * (number + 1),
            rows=100,
            lag=lag,
            ranges=ranges,
            requests=BatchRequests(total=17),
        )
        monitor.finish(batch, ends={("t", 0): 100 * number + 100 + lag})
    return monitor


@contextmanager
def drivers(monitors: Mapping[str, FeedMonitor]) -> Iterator[str]:
    """Serve the endpoints of many drivers; the token of a request names the driver."""

    def answer(request: HttpRequest) -> HttpAnswer:
        monitor = monitors[request.headers["authorization"].removeprefix("Bearer ")]
        path = request.path.partition("?")[0]
        found = monitor.snapshot() if path == "/progress" else monitor.history_since(0.0, most=500)
        return HttpAnswer(200 if path in ("/progress", "/history") else 404, json_line(found.as_dict()).encode())

    with serve_http(answer) as url:
        yield url


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create the files of fifty drivers: five hang, one was killed, one has a hostile name."""
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    driver = this_driver()
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        hangs = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monitors = dict[str, FeedMonitor]()
        answers = stack.enter_context(drivers(monitors))
        for number in range(FEEDS):
            name = HOSTILE if number == 7 else f"feed-{number:02}"
            monitors[name.encode().hex()] = monitor_of(name, lag=10 * number)
            url = hangs if number < HANGING else answers
            file = announced(driver, feed=name, identity=name, since=time.time(), url=url, token=name.encode().hex())
            stack.enter_context(file)
        gone = driver.model_copy(update={"pid": 2**22 - 1})
        stack.enter_context(announced(gone, feed="feed-gone", identity="gone", since=time.time()))
        yield tmp_path


@pytest.mark.waits
def test_top_shows_fifty_feeds_while_some_hang(home: Path) -> None:
    with terminal(["top", "--every", "0.5"], environment={"LAKEFEED_HOME": str(home)}) as shown:
        screen = shown.until(lambda text: "51 feeds" in text and "feed-10" in text and "hangs" in text)
        lines = screen.splitlines()
        assert len(lines) == 24
        assert all(len(line) <= 80 for line in lines)
        assert "q quit" in lines[-1]
        # The first screen already shows the history of every feed.
        assert re.search(r"feed-1\d +waiting .*[▂▃▄▅▆▇█]{3}", screen)
        assert not re.search("\x1b]0|\u202e", shown.written.decode())

        shown.press("l")
        shown.until(lambda text: "> feed-49" in text.splitlines()[2])
        shown.press("t")
        assert shown.until(lambda text: "killed" in text.splitlines()[2])

        shown.press("/feed-2")
        shown.until(lambda text: "10 of 51 feeds" in text)
        shown.press(ENTER)
        shown.press("n")
        shown.press(DOWN)
        shown.until(lambda text: "> feed-21" in text)
        shown.press(ENTER)
        opened = shown.until(lambda text: "partitions" in text)
        assert re.search(r"iceberg lake\.a\.b.*batch 7.*t-0", opened, re.DOTALL)
        shown.press(ESCAPE)
        shown.until(lambda text: "> feed-21" in text)

        shown.resize(200, 40)
        shown.until(lambda text: "last error" in text and len(text.splitlines()) == 40)
        shown.resize(20, 5)
        shown.until(lambda text: max(map(len, text.splitlines())) <= 20 and "> feed-21" in text)
        shown.press("q")
        assert shown.process.wait(10) == 0
        shown.read(0.5)
        assert shown.is_restored


@pytest.mark.waits
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_top_restores_the_terminal_after_a_signal(tmp_path: Path, number: int, status: int) -> None:
    with terminal(["top"], environment={"LAKEFEED_HOME": str(tmp_path), "NO_COLOR": "1"}) as shown:
        shown.until(lambda text: "no driver is known on this machine" in text)
        shown.process.send_signal(number)
        assert shown.process.wait(10) == status
        shown.read(0.5)
        assert shown.is_restored
        # The output has bold and reverse video, but no colour.
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", shown.written)


@pytest.mark.waits
def test_top_restores_the_terminal_after_an_error(tmp_path: Path) -> None:
    program = (
        "from rich.console import Console; from lakefeed_dashboard.top.screen import TopScreen, run_top\n"
        "run_top(TopScreen(lambda: 1 / 0), descriptor=0, console=Console())"
    )
    with terminal(["--version"], environment={}) as shown:
        shown.process.wait(20)
        shown.begin([sys.executable, "-c", program], {**os.environ, "TERM": "xterm"})
        assert shown.process.wait(20) == 1
        shown.read(0.5)
        assert b"ZeroDivisionError" in shown.written
        assert shown.is_restored


@pytest.mark.waits
def test_top_prints_one_table_if_the_output_is_not_a_terminal(home: Path) -> None:
    command = [sys.executable, "-m", "lakefeed.cli", "top"]
    environment = {**os.environ, "LAKEFEED_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=30)
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, len(lines)) == (1, 52)
    assert lines[0].split()[:3] == ["feed", "state", "rec/s"]
    done = subprocess.run([*command, "--output", "json"], capture_output=True, env=environment, check=False, timeout=30)
    feeds = {feed["feed"]: feed for feed in json.loads(done.stdout)["feeds"]}
    assert feeds["feed-00"]["state"] == "hangs"
    assert feeds["feed-gone"]["state"] == "killed"
    assert (feeds["feed-49"]["lag"], feeds["feed-49"]["requests"], feeds["feed-49"]["batch"]) == (490, 17, 7)
    assert len(feeds["feed-49"]["points"]) == 8
