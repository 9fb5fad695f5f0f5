"""Run a driver in a separate process, and query its endpoint."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lakefeed.monitor.drivers import DriverFile, read
from tests.support.cli import Running
from tests.support.pages import answer


@contextmanager
def driver(path: Path, environment: Mapping[str, str], log: Path, *options: str) -> Iterator[Callable[[str], str]]:
    """Run a driver in a separate process; yield a function that returns the endpoint's answer for a path."""
    with Running(["run", path, "--log-format", "json", *options], environment, log) as running:
        running.wait_until_it_says('"event":"batch"')
        url, token = address(environment)

        def ask(path: str) -> str:
            status, text = answer(url + path, headers={"Authorization": f"Bearer {token}"})
            assert status == 200, text
            return text

        yield ask
        assert running.ask_to_stop(signal.SIGTERM) == 0, running.said()


def address(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the endpoint's URL and token from the driver's file."""
    [file] = (Path(environment["LAKEFEED_HOME"]) / "run" / "drivers").iterdir()
    found: DriverFile | None = read(file)
    assert found is not None
    assert found.url is not None
    assert found.token is not None
    return found.url, found.token
