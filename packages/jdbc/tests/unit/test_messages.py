"""An error text omits values of records, which messages of databases may quote."""

import pytest

from lakefeed_jdbc.session import StatementRefusal

CANARY = 'J. Doe\'s "card"\n4111'


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
def test_a_refusal_contains_no_value_of_a_record(state: str, text: str, shown: str) -> None:
    said = text.format(CANARY.replace("\n", " "))
    refusal = StatementRefusal.of(RuntimeError(f"lakefeed database [{state}]: {said}"))
    assert refusal is not None
    assert refusal.text == shown
    assert "Doe" not in str(refusal.error("table trips"))
