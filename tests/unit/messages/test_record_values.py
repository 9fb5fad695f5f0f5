"""What Spark, databases and search servers say loses the values of records that it quotes."""

from __future__ import annotations

import pytest

from lakefeed.clients.spark.errors import translate
from lakefeed.feed.failing_records import kind_of_failure
from lakefeed.messages.record_values import without_values
from lakefeed.sinks.elasticsearch.server import Answer, refusal
from lakefeed.sinks.jdbc.session import StatementRefusal

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


@pytest.mark.parametrize(
    ("state", "text", "shown"),
    [
        (
            "22P02 0",
            'ERROR: invalid input syntax for type integer: "{}"',
            "ERROR: invalid input syntax for type integer: …",
        ),
        ("22P02 0", 'ERROR: invalid input value for enum mood: "{}"', "ERROR: invalid input value for enum mood: …"),
        ("22008 0", 'ERROR: date/time field value out of range: "{}"', "ERROR: date/time field value out of range: …"),
        (
            "22003 0",
            'ERROR: value "{}" is out of range for type integer',
            "ERROR: value … is out of range for type integer",
        ),
        (
            "23505 0",
            'ERROR: duplicate key value violates unique constraint "pk" Detail: Key (name)=({}) already exists.',
            'ERROR: duplicate key value violates unique constraint "pk"',
        ),
        (
            "23502 0",
            'ERROR: null value in column "a" violates not-null constraint Detail: Failing row contains ({}, null).',
            'ERROR: null value in column "a" violates not-null constraint',
        ),
        (
            "22001 0",
            "ERROR: value too long for type character varying(3)",
            "ERROR: value too long for type character varying(3)",
        ),
        ("23000 1062", "Duplicate entry '{}' for key 'PRIMARY'", "Duplicate entry … for key 'PRIMARY'"),
        (
            "HY000 1366",
            "Incorrect integer value: '{}' for column `a`.`t`.`n` at row 1",
            "Incorrect integer value: … for column `a`.`t`.`n` at row 1",
        ),
        ("22007 1292", "Truncated incorrect DOUBLE value: '{}'", "Truncated incorrect DOUBLE value: …"),
        ("22001 1406", "Data too long for column 'name' at row 1", "Data too long for column 'name' at row 1"),
    ],
)
def test_messages_of_databases(state: str, text: str, shown: str) -> None:
    said = text.format(CANARY.replace("\n", " "))
    refusal = StatementRefusal.of(RuntimeError(f"lakefeed database [{state}]: {said}"))
    assert refusal is not None
    assert refusal.text == shown
    assert "Doe" not in str(refusal.error("table trips"))


def test_messages_of_search_servers() -> None:
    reason = f"failed to parse field [n] of type [long] in document with id '7'. Preview of field's value: '{CANARY}'"
    answer = Answer(400, {"error": {"type": "mapper_parsing_exception", "reason": reason}})
    message = str(refusal(answer, where="index trips"))
    assert "failed to parse field [n] of type [long]" in message
    assert "Doe" not in message
