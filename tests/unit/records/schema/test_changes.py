"""The history of schema changes in a table's properties."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lakefeed.errors import ConfigError
from lakefeed.records.schema.changes import (
    HISTORY,
    IDS,
    LIMIT,
    Change,
    Entry,
    History,
    history_properties,
    read_history,
    read_ids,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ADDED = Change("added", "address.zip", None, "string or null")


def test_a_table_without_properties_has_no_history() -> None:
    assert read_history({}) == History()
    assert read_ids({}) == frozenset()
    assert history_properties({}, []) == {}


def test_history_appends_new_entries_at_the_end() -> None:
    first = history_properties({}, [Entry(AT, 3, (ADDED,))], ids=[1, 2])
    assert first == {
        HISTORY: '{"dropped":0,"entries":[{"at":"2026-01-02T03:04:05Z","id":3,'
        '"changes":[["added","address.zip",null,"string or null"]]}]}',
        IDS: "1,2,3",
    }
    rename = Entry(AT + timedelta(hours=1), None, (Change("renamed", "b", "a", "b"),))
    both = read_history({**first, **history_properties(first, [rename])})
    assert both.entries == (Entry(AT, 3, (ADDED,)), rename)


def test_an_entry_without_changes_adds_only_the_schema_id() -> None:
    before = history_properties({}, [Entry(AT, 3, (ADDED,))])
    assert history_properties(before, [Entry(AT, 7, ())]) == {IDS: "3,7"}
    assert history_properties(before, [Entry(AT, 3, ())]) == {}


def test_history_drops_the_oldest_entries_and_counts_them() -> None:
    properties: dict[str, str] = {}
    for number in range(LIMIT + 3):
        properties |= history_properties(properties, [Entry(AT, number, (ADDED,))])
    history = read_history(properties)
    assert (len(history.entries), history.dropped) == (LIMIT, 3)
    assert [history.entries[0].schema_id, history.entries[-1].schema_id] == [3, LIMIT + 2]


def test_history_has_times_in_utc_and_shortens_long_types() -> None:
    local = datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    properties = history_properties({}, [Entry(local, 1, (Change("added", "e", None, "x" * 200),))])
    (entry,) = read_history(properties).entries
    assert entry.at == AT
    assert entry.changes[0].after == "x" * 79 + "…"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"dropped":0,"entries":[{}]}', '{"dropped":"x","entries":[]}'])
def test_an_invalid_history_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"lakefeed\.schema-history cannot be read"):
        read_history({HISTORY: text})


def test_an_invalid_list_of_ids_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"lakefeed\.schema-ids cannot be read"):
        read_ids({IDS: "1,two"})
