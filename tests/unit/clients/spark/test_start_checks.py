"""While a session starts, a check runs, and its error ends the start."""

import threading
from collections.abc import Callable

import pytest

from lakefeed.clients.spark.start_checks import StartChecks
from lakefeed.errors import JavaError, ResourceMissing

MISSING = ResourceMissing("there is no topic trips")


def fail() -> None:
    raise MISSING


def test_a_start_raises_the_error_of_its_check() -> None:
    with pytest.raises(ResourceMissing), StartChecks(fail) as checks:
        checks.begin()
    with pytest.raises(ResourceMissing), StartChecks(fail):
        """A session that already runs does not wait for the check."""


def test_the_checks_error_replaces_the_sessions_error() -> None:
    with pytest.raises(ResourceMissing):
        end_by(JavaError("no Java"), check=fail)
    with pytest.raises(JavaError):
        end_by(JavaError("no Java"), check=lambda: None)


def test_poll_does_not_wait_for_the_check() -> None:
    answer = threading.Event()
    with StartChecks(lambda: assert_true(answer.wait(30))) as checks:
        checks.poll()
        checks.begin()
        checks.poll()
        answer.set()
        checks.finish()
        checks.poll()


def test_an_interrupted_start_does_not_wait_for_its_check() -> None:
    with pytest.raises(KeyboardInterrupt):
        end_by(KeyboardInterrupt(), check=lambda: assert_true(threading.Event().wait()))


def end_by(error: BaseException, *, check: Callable[[], None]) -> None:
    """End the start of a session with this error while the check runs."""
    with StartChecks(check) as checks:
        checks.begin()
        raise error


def assert_true(value: bool) -> None:
    assert value
