"""What Spark says loses the values of records that it quotes."""

from __future__ import annotations

import pytest

from lakefeed.clients.spark.errors import translate
from lakefeed.feed.failing_records import kind_of_failure
from lakefeed.messages.record_values import without_values

CANARY = 'J. Doe\'s "card"\n4111'

CAST = (
    f'[CAST_INVALID_INPUT] The value \'{CANARY}\' of the type "STRING" cannot be cast to "INT" because it is '
    "malformed. Correct the value as per the syntax, or change its target type. Use `try_cast` to tolerate "
    "malformed input and return NULL instead. SQLSTATE: 22018\n"
    "== SQL (line 1, position 8) ==\nSELECT CAST(amount AS INT) AS amount FROM trips\n       ^^^^^^^^^^^^^^^^^^^\n"
)
STACK = "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInputInCastToNumberError(Q.scala:144)\n"
WRAPPED = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in "
    f"stage 1.0 failed 1 times: org.apache.spark.SparkNumberFormatException: {CAST}{STACK} SQLSTATE: XXKST"
)
SHOWN = (
    '[CAST_INVALID_INPUT] a value of the type "STRING" cannot be cast to "INT"; in CAST(amount AS INT); SQLSTATE 22018'
)


@pytest.mark.parametrize(
    "text",
    [
        CAST,
        WRAPPED,
        f"{WRAPPED}\n\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted\n{STACK}"
        f"Caused by: org.apache.spark.SparkNumberFormatException: {CAST}{STACK}",
    ],
)
def test_a_cast_shows_class_types_and_expression_without_the_value(text: str) -> None:
    error = translate(RuntimeError(text))
    assert error.where == SHOWN
    assert "Doe" not in str(error)
    assert "4111" not in str(error)
    assert kind_of_failure(error.where) == SHOWN


def test_a_cast_on_writing_shows_the_column() -> None:
    text = (
        '[CAST_OVERFLOW_IN_TABLE_INSERT] Fail to assign a value of "BIGINT" type to the "INT" type column or variable '
        "`amount` due to an overflow. SQLSTATE: 22003"
    )
    assert without_values(text) == "[CAST_OVERFLOW_IN_TABLE_INSERT] column `amount`; SQLSTATE 22003"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # Spark's and Java's own.
        (
            f'java.lang.NumberFormatException: For input string: "{CANARY}"',
            "java.lang.NumberFormatException: For input string: …",
        ),
        (
            f"java.time.format.DateTimeParseException: Text '{CANARY}' could not be parsed at index 0",
            "java.time.format.DateTimeParseException: Text … could not be parsed at index 0",
        ),
        (f"[USER_RAISED_EXCEPTION] {CANARY} SQLSTATE: P0001", "[USER_RAISED_EXCEPTION] SQLSTATE P0001"),
        (
            f"[NUMERIC_VALUE_OUT_OF_RANGE.X] The {CANARY} cannot be represented. SQLSTATE: 22003",
            "[NUMERIC_VALUE_OUT_OF_RANGE.X] SQLSTATE 22003",
        ),
        (
            f"[DUPLICATED_MAP_KEY] Duplicate map key {CANARY} was found. SQLSTATE: 23505",
            "[DUPLICATED_MAP_KEY] SQLSTATE 23505",
        ),
        (
            "java.lang.IllegalArgumentException: Cannot write value as decimal(4,2), too large: -100.00",
            "java.lang.IllegalArgumentException: Cannot write value as decimal(4,2), too large: …",
        ),
        # Names and types are no values.
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `amuont` cannot be resolved. SQLSTATE: 42703",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `amuont` cannot be resolved. SQLSTATE: 42703",
        ),
        ("java.io.IOException: No space left on device", "java.io.IOException: No space left on device"),
    ],
)
def test_messages_of_spark(text: str, shown: str) -> None:
    assert without_values(text) == shown
    assert translate(RuntimeError(text)).where == shown
