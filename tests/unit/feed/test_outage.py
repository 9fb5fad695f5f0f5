"""During an outage of any server a feed waits; tested are the errors, the time limit, and the messages."""

import threading

import pytest

from lakefeed.clients.spark.errors import translate
from lakefeed.errors import (
    AccessDenied,
    BrokerUnreachable,
    ConfigError,
    FileDenied,
    JobFailed,
    LakefeedError,
    RecordsLost,
    Unreachable,
)
from lakefeed.feed.steering import Outage
from lakefeed.monitor.feed_monitor import FeedMonitor

BROKERS = BrokerUnreachable("no Kafka broker answers", where="b:9092", hint="check that the broker runs")
CATALOG = AccessDenied("the REST catalog refuses the login", hint="a token may have expired")


def outage(*, seconds: float = 300.0) -> tuple[Outage, FeedMonitor, list[str]]:
    stop, monitor, said = threading.Event(), FeedMonitor("taxi"), []  # type: ignore[var-annotated]
    stop.set()  # Makes ``Outage.wait`` return immediately.
    return Outage(stop=stop, monitor=monitor, say=said.append, seconds=seconds), monitor, said


def test_an_outage_is_reported_once_and_shown_until_it_ends() -> None:
    waiting, monitor, said = outage()
    waiting.has_landed = True
    assert all(waiting.wait(BROKERS) for _ in range(3))
    assert said == ["waiting for a server: no Kafka broker answers (b:9092); for at most 300 s"]
    assert (monitor.snapshot().state, monitor.snapshot().waits_for) == ("retrying", "no Kafka broker answers (b:9092)")
    waiting.is_over()
    waiting.is_over()
    assert (monitor.snapshot().state, monitor.snapshot().waits_for) == ("waiting", None)
    assert len(said) == 2


def test_the_error_after_the_time_limit_has_the_servers_answer_and_a_hint() -> None:
    waiting, _, _ = outage(seconds=-1.0)
    waiting.has_landed = True
    assert waiting.wait(CATALOG)
    with pytest.raises(AccessDenied, match="the REST catalog refuses the login, for 0 s now") as ended:
        waiting.wait(CATALOG)
    assert "then start the feed again: it resumes where it stopped" in str(ended.value.hint)


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (BROKERS, True, True),
        (Unreachable("a server that the pipeline needs does not answer"), False, True),
        (CATALOG, False, True),
        (JobFailed("the disk is full"), False, False),
        (FileDenied("a file cannot be written"), False, False),
        (ConfigError("the address is wrong"), False, False),
        (RecordsLost("the topic was recreated"), False, False),
        (translate(Exception("lakefeed schema registry does not answer: http://r gave no schema")), False, False),
        (translate(Exception("lakefeed schema registry gave no usable answer: http://r answered 404")), False, True),
        # The text mentions a broker, but only the class BrokerUnreachable counts.
        (Unreachable("the broker's proxy of Kafka does not answer"), False, True),
    ],
)
def test_a_run_waits_for_a_server_that_has_worked_before(error: LakefeedError, before: bool, after: bool) -> None:
    waiting, _, _ = outage()
    assert waiting.wait(error) is before
    waiting.is_over()
    waiting.has_landed = True
    assert waiting.wait(error) is after


@pytest.mark.parametrize(
    "text",
    [
        "software.amazon.awssdk.services.s3.model.S3Exception: SlowDown (Service: S3, Status Code: 503, Request ID: 1)",
        "org.apache.iceberg.exceptions.ServiceUnavailableException: Server error: Unavailable",
        "org.apache.iceberg.exceptions.ServiceFailureException: Server error: HTTP 502",
        "software.amazon.awssdk.services.s3.model.S3Exception: null (Service: S3, Status Code: 500, Request ID: null)",
        "org.apache.iceberg.exceptions.RESTException: Unable to process (code: 429, type: null): too many requests",
        "org.apache.iceberg.exceptions.CommitStateUnknownException: Cannot determine whether the commit was successful",
        "org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized: token expired",
        "org.apache.iceberg.exceptions.ForbiddenException: Forbidden: no",
        "org.postgresql.util.PSQLException: FATAL: the database system is starting up",
        "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: Call(listOffsets)",
        "java.io.IOException: topic t, partition 0: no record came from offset 7 on within 120000 ms",
        "org.apache.kafka.common.errors.NotLeaderOrFollowerException: For requests intended only for the leader",
    ],
)
def test_a_run_waits_if_a_server_answers_with_a_temporary_error(text: str) -> None:
    waiting, _, _ = outage()
    waiting.has_landed = True
    assert waiting.wait(translate(Exception(text)))
