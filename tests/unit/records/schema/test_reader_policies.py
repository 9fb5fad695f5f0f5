"""The three policies for schema changes."""

import json

import pytest

from lakefeed.errors import SchemaChanged
from lakefeed.records.schema.reader import ChangePolicy, Evolution
from tests.support.avro_documents import field, record

V1 = json.dumps(record(field("a", "int")))
V2 = json.dumps(record(field("a", "int"), field("b")))
V3 = json.dumps(record(field("a", "long"), field("b"), field("c")))
MISFIT = json.dumps(record(field("a", "string")))
POLICIES: list[ChangePolicy] = ["evolve", "ignore", "fail"]


def test_the_policy_evolve_changes_the_readers_schema() -> None:
    evolution = Evolution("evolve", V1, known_ids={1})
    merge = evolution.merge_writer_schema(2, V2)
    assert merge is not None
    assert [str(each) for each in merge.changes] == ["b added (string or null)"]
    assert evolution.reader_schema == merge.schema
    assert evolution.known_ids == {1, 2}
    assert evolution.take_notes() == ()


def test_the_policy_ignore_notes_each_new_field_once_and_widens_types() -> None:
    evolution = Evolution("ignore", V1, known_ids={1})
    assert evolution.merge_writer_schema(2, V2) is None
    assert evolution.take_notes() == ("schema id 2: left out by schema.on_change: ignore: b added (string)",)
    merge = evolution.merge_writer_schema(3, V3)
    assert merge is not None
    assert [str(each) for each in merge.changes] == ["a widened from int to long"]
    assert [each["name"] for each in json.loads(evolution.reader_schema)["fields"]] == ["a"]
    assert evolution.take_notes() == ("schema id 3: left out by schema.on_change: ignore: c added (string)",)
    assert evolution.take_notes() == ()


def test_the_policy_fail_raises_an_error_at_each_change() -> None:
    evolution = Evolution("fail", V1, known_ids={1})
    for _ in range(2):
        with pytest.raises(SchemaChanged) as stopped:
            evolution.merge_writer_schema(2, V2)
        assert stopped.value.what == "the schema changed with schema id 2: b added (string or null)"
        assert "lakefeed schema diff" in (stopped.value.hint or "")
        assert stopped.value.exit_status == 1
    assert evolution.reader_schema == V1
    assert evolution.known_ids == {1}
    with pytest.raises(SchemaChanged, match="schema id 4: a is int in the reader's schema and string in the writer's"):
        evolution.merge_writer_schema(4, MISFIT)


@pytest.mark.parametrize("policy", ["evolve", "ignore"])
def test_an_incompatible_schema_is_refused_once(policy: ChangePolicy) -> None:
    evolution = Evolution(policy, V1, known_ids={1})
    assert evolution.merge_writer_schema(4, MISFIT) is None
    assert evolution.merge_writer_schema(4, MISFIT) is None
    assert list(evolution.incompatible) == [4]
    assert evolution.known_ids == {1, 4}
    assert evolution.merged_ids == {1}
    assert evolution.take_notes() == (
        "schema id 4: a is int in the reader's schema and string in the writer's: no column can hold both; "
        "its records are not landed",
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_schema_that_the_reader_covers_changes_nothing(policy: ChangePolicy) -> None:
    evolution = Evolution(policy, V1, known_ids={1})
    assert evolution.merge_writer_schema(1, V3) is None
    assert evolution.merge_writer_schema(5, json.dumps(record(field("a", "int"), doc="the same"))) is None
    assert evolution.known_ids == {1, 5}
    assert evolution.reader_schema is V1
    assert evolution.take_notes() == ()


def test_the_policy_fail_accepts_a_new_alias_of_the_record() -> None:
    """The decoder needs the alias, but the table does not change."""
    evolution = Evolution("fail", V1)
    merge = evolution.merge_writer_schema(2, json.dumps(record(field("a", "int"), name="Other", aliases=["R"])))
    assert merge is not None
    assert merge.changes == ()
    assert json.loads(evolution.reader_schema)["aliases"] == ["Other"]
