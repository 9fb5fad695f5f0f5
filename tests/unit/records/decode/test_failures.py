import pytest

from lakefeed.errors import AccessDenied, Unreachable
from lakefeed.records.decode import decode_error_of, registry_error_of

SPARK = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [USER_RAISED_EXCEPTION] {} SQLSTATE: P0001\n"
    "\tat org.apache.spark.Something\nCaused by: org.apache.spark.SparkRuntimeException\n"
)


def test_a_decode_error_gets_offset_and_reason_from_sparks_error() -> None:
    text = SPARK.format("lakefeed cannot decode the record at topic a.b-c, partition 3, offset 42: empty: 0 bytes")
    error = decode_error_of(RuntimeError(text))
    assert error is not None
    assert error.where == "topic a.b-c, partition 3, offset 42"
    assert error.what == "A record cannot be decoded: empty: 0 bytes"


def test_a_decode_error_is_found_in_the_cause_of_an_error() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = ValueError("lakefeed cannot decode the record at topic t, partition 0, offset 1: x")
    error = decode_error_of(outer)
    assert error is not None
    assert error.where == "topic t, partition 0, offset 1"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("does not answer: http://r gave no schema within 60 s; last: HTTP status 503", Unreachable),
        ("refuses the credentials: http://r answered with HTTP status 401", AccessDenied),
    ],
)
def test_a_registry_error_gets_its_text_from_sparks_error(text: str, kind: type[Exception]) -> None:
    error = registry_error_of(RuntimeError(f"x: lakefeed schema registry {text}\n\tat y"))
    assert type(error) is kind
    assert error.where == text.partition(": ")[2]


def test_other_errors_of_spark_are_neither_decode_errors_nor_registry_errors() -> None:
    assert decode_error_of(RuntimeError("out of memory")) is None
    assert registry_error_of(RuntimeError("out of memory")) is None
