"""Text from records and servers is printed without control characters and without values of records."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.cli.output import echo, styled
from lakefeed.clients.spark.errors import translate
from lakefeed.feed.failing_records import kind_of_failure
from lakefeed.feed.run import RunSummary
from lakefeed.feed.s3_requests import S3Requests
from lakefeed.messages.printable import counted, printable, printable_json, unescaped, without_values
from lakefeed.monitor.terminal import ProgressView
from lakefeed_inspect import read_command as read
from lakefeed_repair import dead_letters_commands as dead_letters

# This text clears the screen, sets the window's title, deletes a character, starts a C1 sequence and reverses the
# line's direction; it has a lone surrogate and a line separator.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\b\x7f\x9b31m\u202e\ud800\u2028 größe 東京"


def test_control_characters_become_escapes() -> None:
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert shown.startswith(r"\x1b[2J\x1b]0;owned\x07\x08\x7f\x9b31m\u202e\ud800\u2028")
    assert shown.endswith(" größe 東京")


@given(st.text(st.characters(exclude_characters="\\")))
def test_an_escaped_text_can_be_restored(text: str) -> None:
    assert printable(text).isprintable()
    assert unescaped(printable(text)) == text


@given(st.text())
def test_escapes_in_json_do_not_change_the_value(text: str) -> None:
    document = json.dumps({"value": text}, ensure_ascii=False, indent=2)
    shown = printable_json(document)
    assert json.loads(shown) == {"value": text}
    assert shown.replace("\n", "").isprintable()


def test_all_outputs_of_a_record_are_printable() -> None:
    console = io.StringIO()
    from rich.console import Console

    ProgressView("feed", console=Console(file=console)).note(HOSTILE)
    shown = [
        dead_letters._bytes_text(HOSTILE.encode("utf-8", "surrogatepass")),
        dead_letters._bytes_text(HOSTILE.replace("\ud800", "").encode()),
        read._cell(HOSTILE),
        console.getvalue().replace("\n", ""),
    ]
    for each in shown:
        assert each.isprintable(), each


def test_a_large_value_is_truncated_and_stays_text() -> None:
    shown = dead_letters._bytes_text(b"x" + "ö".encode() * 500_000)
    assert shown.startswith("xöö")
    assert shown.endswith("… (1,000,001 bytes in all; --value-file writes them)")
    assert len(shown) < 3_000
    assert len(dead_letters._cut("k" * 1_000_000)) < 3_000


def test_echo_keeps_line_breaks_and_its_own_colours() -> None:
    import click
    from click.testing import CliRunner

    @click.command()
    def say() -> None:
        echo(styled("one\n\x1b[2Jtwo", fg="red") + "\x1b")

    assert CliRunner().invoke(say, color=True).output == "\x1b[31mone\n\\x1b[2Jtwo\x1b[0m\\x1b\n"


def summary(**more: object) -> RunSummary:
    given = {"batches": 1, "records": 1200, "rows": 1200, "seconds": 2.0, "s3_requests": {}, "requests": S3Requests()}
    return RunSummary(**{**given, **more})  # type: ignore[arg-type]


def test_the_repr_of_a_summary_is_one_line() -> None:
    assert repr(summary()) == "<RunSummary: 1 batch, 1,200 records, 1,200 rows in 2.0 s>"


def test_a_notebook_shows_html_in_texts_as_text() -> None:
    shown = summary(paused={"<script>alert(1)</script>": "a\x1b[31m & b"})._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "\x1b" not in shown
    assert "1,200 (600/s)" in shown


def test_a_count_of_1_has_a_singular_noun() -> None:
    assert [counted(count, "batch", "batches") for count in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]
    assert counted(1, "row") == "1 row"


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
def test_an_error_of_a_cast_shows_types_and_expression_without_the_value(text: str) -> None:
    error = translate(RuntimeError(text))
    assert error.where == SHOWN
    assert "Doe" not in str(error)
    assert "4111" not in str(error)
    assert kind_of_failure(error.where) == SHOWN


def test_the_error_of_an_overflow_while_writing_names_the_column() -> None:
    text = (
        '[CAST_OVERFLOW_IN_TABLE_INSERT] Fail to assign a value of "BIGINT" type to the "INT" type column or variable '
        "`amount` due to an overflow. SQLSTATE: 22003"
    )
    assert without_values(text) == "[CAST_OVERFLOW_IN_TABLE_INSERT] column `amount`; SQLSTATE 22003"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # messages of Spark and Java
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
        # Names and types are not values, so they stay.
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `amuont` cannot be resolved. SQLSTATE: 42703",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `amuont` cannot be resolved. SQLSTATE: 42703",
        ),
        ("java.io.IOException: No space left on device", "java.io.IOException: No space left on device"),
    ],
)
def test_values_are_removed_from_messages_of_spark_and_java(text: str, shown: str) -> None:
    assert without_values(text) == shown
    assert translate(RuntimeError(text)).where == shown
