"""Translate Spark's errors to lakefeed's, with a hint, and prevent PySpark from logging them."""

from __future__ import annotations

import logging
import threading

import pytest
from pyspark.logger import PySparkLogger

from lakefeed.clients.spark.errors import quietly, translate
from lakefeed.errors import (
    AccessDenied,
    CheckpointInUse,
    ConfigError,
    FileDenied,
    JobFailed,
    LakefeedError,
    Unreachable,
)

STREAM_FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST"


@pytest.mark.parametrize(
    ("spark", "what"),
    [
        ("batch 1 doesn't exist", "an entry of the checkpoint is gone: another driver works on the same checkpoint"),
        (
            "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The location s3a://lake/c should be empty on batch 0",
            "another driver works on the same checkpoint, or its folder has files of another query",
        ),
        ("java.lang.IllegalStateException: Race while writing batch 3", "another driver works on the same checkpoint"),
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
            "another driver works on the same checkpoint",
        ),
    ],
)
def test_a_checkpoint_that_another_driver_changes_is_reported_as_in_use(spark: str, what: str) -> None:
    found = translate(RuntimeError(STREAM_FAILED.format(spark)))
    assert type(found) is CheckpointInUse
    assert found.what.startswith(what)
    assert "stop the other run of this pipeline" in (found.hint or "")


@pytest.mark.parametrize(
    ("java", "kind", "what"),
    [
        ("java.io.IOException: No space left on device", JobFailed, "the disk is full"),
        (
            "org.sqlite.SQLiteException: [SQLITE_FULL] Insertion failed because database is full",
            JobFailed,
            "the disk is full",
        ),
        ("java.io.FileNotFoundException: /lake/t/data/0.parquet (Permission denied)", FileDenied, "cannot be written"),
        ("java.io.FileNotFoundException: /lake/t/m.json (Operation not permitted)", FileDenied, "cannot be written"),
        ("java.io.FileNotFoundException: /lake/t/m.json (Read-only file system)", FileDenied, "cannot be written"),
        ("java.nio.file.AccessDeniedException: /lake/t/metadata", FileDenied, "cannot be written"),
        (
            "org.sqlite.SQLiteException: [SQLITE_READONLY] Attempt to write a readonly database",
            FileDenied,
            "cannot be written",
        ),
        (
            "java.io.FileNotFoundException: File file:/a lake/t/metadata/00005-b.metadata.json does not exist",
            JobFailed,
            "table's metadata file, which the catalog names, does not exist",
        ),
    ],
)
def test_the_error_for_a_full_disk_or_a_denied_or_missing_file_has_a_hint(
    java: str, kind: type[LakefeedError], what: str
) -> None:
    found = translate(
        RuntimeError(f"Job aborted due to stage failure\n\tat x.Y.z(Y.java:1)\nCaused by: {java}\n\tat a.B.c(B.java:2)")
    )
    assert type(found) is kind
    assert what in found.what
    assert java in (found.where or "")
    assert found.hint


def test_an_s3_store_that_refuses_access_is_not_reported_as_a_denied_file() -> None:
    found = translate(RuntimeError("java.nio.file.AccessDeniedException: s3a://lake/c: PUT: Status Code: 403"))
    assert found.what == "the S3 store refuses the credentials"


class Thrown:
    """A stand-in for a Java exception, with the methods that Py4J offers."""

    def __init__(self, name: str, message: str, cause: Thrown | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> Thrown:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getMessage(self) -> str:  # noqa: N802
        return self._message

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self._cause


def failed_task(name: str, message: str) -> RuntimeError:
    """Return the error of a job whose task threw an exception of this class; Spark's message quotes the exception."""
    text = f"org.apache.spark.SparkException: Job aborted due to stage failure: {name}: {message}"
    error = RuntimeError(f"An error occurred while calling o1.append.\n: {text}\n\tat a.B.c(B.java:2)")
    error.java_exception = Thrown("org.apache.spark.SparkException", text, Thrown(name, message))  # type: ignore[attr-defined]
    return error


class Answer(Thrown):
    """A stand-in for an exception of the S3 client, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__("software.amazon.awssdk.services.s3.model.S3Exception", message)
        self._status = status

    def statusCode(self) -> int:  # noqa: N802
        return self._status


@pytest.mark.parametrize(("status", "kind"), [(503, Unreachable), (429, Unreachable), (403, AccessDenied)])
def test_the_http_status_of_s3_decides_the_error_not_the_text(status: int, kind: type[LakefeedError]) -> None:
    error = RuntimeError("o1.append: s3://lake/NoSuchBucket/AccessDenied/SlowDown")
    error.java_exception = Thrown("java.io.IOException", "put", Answer(status, "of AccessDenied/SlowDown"))  # type: ignore[attr-defined]
    found = translate(error)
    assert type(found) is kind
    assert found.where == "software.amazon.awssdk.services.s3.model.S3Exception: of AccessDenied/SlowDown"


@pytest.mark.parametrize(
    "value",
    [
        "Connection refused",
        "software.amazon.awssdk: SlowDown (Status Code: 503)",
        "SignatureDoesNotMatch",
        "No space left on device",
        "a.parquet (Permission denied)",
        "NotAuthorizedException: token expired",
        "This server does not host this topic-partition",
        "org.apache.kafka.common.errors.TimeoutException",
        "lakefeed refuses the commit: another driver has taken over",
    ],
)
def test_the_text_of_a_record_is_not_mistaken_for_an_error_of_a_server(value: str) -> None:
    # If the record's text counted as a server's error, a feed would wait minutes for the server.
    message = f'[CAST_INVALID_INPUT] The value \'{value}\' of the type "STRING" cannot be cast to "INT".'
    of_record = translate(failed_task("org.apache.spark.SparkNumberFormatException", message))
    assert (type(of_record), of_record.what, of_record.passes) == (JobFailed, "Spark stopped the job", False)
    of_world = translate(failed_task("java.io.IOException", f"software.amazon.awssdk: {value}"))
    assert of_world.what != "Spark stopped the job"


CALL = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: {}\n\tat java.base/java.lang.X"
)


@pytest.mark.parametrize(
    "java",
    [
        "java.lang.ClassNotFoundException: io.lakefeed.metrics.FeedMetrics",
        "java.lang.NoClassDefFoundError: io/lakefeed/metrics/FeedMetrics",
    ],
)
def test_a_lakefeed_jar_of_another_version_is_a_config_error(java: str) -> None:
    found = translate(RuntimeError(CALL.format(java)))
    assert (type(found), found.exit_status) == (ConfigError, 2)
    assert "install lakefeed again" in str(found)
    assert "FeedMetrics" in str(found)


def test_an_unknown_error_at_the_start_is_shown_without_a_stack_trace() -> None:
    found = translate(RuntimeError(CALL.format("java.lang.ClassNotFoundException: org.example.Mine")))
    assert (type(found), found.where) == (JobFailed, "java.lang.ClassNotFoundException: org.example.Mine")


class Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_quietly_silences_only_the_thread_that_calls_it() -> None:
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    handler = Messages()
    log.addHandler(handler)
    inside, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with quietly():
            inside.set()
            may_end.wait(5)
            log.error("of the other thread")

    thread = threading.Thread(target=other)
    try:
        thread.start()
        assert inside.wait(5)
        log.error("heard")
        with quietly():
            with quietly():
                log.error("nested")
            log.error("quiet")
        log.error("heard again")
        may_end.set()
        thread.join(5)
    finally:
        log.removeHandler(handler)
    assert handler.messages == ["heard", "heard again"]
