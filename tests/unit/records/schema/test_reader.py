"""A running feed refuses a writer's schema whose rows its table cannot take, and continues."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.types import StructType

from lakefeed.errors import ConfigError, ResourceMissing, SchemaIncompatible
from lakefeed.records.decode import ConfluentAvro, ConfluentJson, ConfluentProtobuf
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.ddl import statements
from lakefeed.records.schema.fit import columns_of
from lakefeed.records.schema.reader import ReaderSchema, StoredSchema
from lakefeed.records.spec import ResolvedDecoder
from tests.support import avro_documents
from tests.support.avro_documents import MALFORMED, bomb, deep, record

of = avro_documents.field
V1 = record(of("id", "int"), name="Trip")
V2 = record(of("id", "int"), of("fare", "double"), name="Trip")


@dataclass
class Keeper:
    """A table that accepts only new columns; with ``broken``, the table refuses every change."""

    columns: StructType | None = None
    broken: bool = False
    stored: StoredSchema | None = None

    def stored_schema(self) -> StoredSchema | None:
        return self.stored

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        if self.broken:
            raise SchemaIncompatible("the table was changed by hand")
        have = self.columns or StructType()
        statements("a.b.c", have=have, want=rows)
        self.columns = StructType([*have.fields, *(each for each in rows.fields if each.name not in have.names)])
        self.stored = stored


@dataclass
class Rows:
    schema: StructType


@dataclass
class Feed:
    """The reader's schema of a feed; a registry has the schemas of ``writers``. The rows have a column kafka_offset."""

    writers: dict[int, Any]
    keeper: Keeper = field(default_factory=Keeper)
    format: type[ConfluentAvro | ConfluentJson | ConfluentProtobuf] = ConfluentAvro

    def __post_init__(self) -> None:
        spec = self.format(registry_url="http://r", reader_schema=json.dumps(V1))
        decoder = ResolvedDecoder(spec=spec, latest_id=1, writer_schema=self.writer)
        self.schema = ReaderSchema(decoder, keeper=self.keeper)
        self.schema.begin(self.rows)

    def writer(self, schema_id: int) -> str:
        if schema_id not in self.writers:
            raise ResourceMissing(f"The schema registry has no schema id {schema_id}")
        return json.dumps(self.writers[schema_id])

    def rows(self) -> Any:
        spec: Any = self.schema.spec
        columns = columns_of(spec.reader_schema)
        for each in columns.names:
            if each.lower() == "kafka_offset":
                raise ConfigError(f"The value has a field {each} already")
        return Rows(columns)

    def meet(self, *ids: int) -> tuple[str, ...]:
        """Merge the writers' schemas with these ids; return the messages."""
        self.schema.merge_writer_schemas(ids, rows_of=self.rows)
        return self.schema.notes()

    @property
    def names(self) -> list[str]:
        assert self.keeper.columns is not None
        return self.keeper.columns.names


def test_a_refused_schema_does_not_stop_the_merge_of_other_schemas() -> None:
    feed = Feed({2: V2, 3: record(of("id", "int"), of("KAFKA_offset", "long"), name="Trip"), 4: V2})
    notes = feed.meet(2, 3, 4)
    assert feed.names == ["id", "fare"]
    assert feed.schema.refused_ids == {3: "The value has a field KAFKA_offset already"}
    assert set(feed.schema.covered_ids or ()) == {1, 2, 3, 4}
    assert feed.keeper.stored is not None
    assert feed.keeper.stored.ids == {1, 2, 4}
    assert list(notes) == [
        "schema id 2: fare added (double or null)",
        "schema id 3: The value has a field KAFKA_offset already; its records are not landed",
    ]
    assert feed.meet(3) == ()


def test_a_schema_is_refused_if_the_table_has_a_column_of_another_type() -> None:
    feed = Feed({2: V2})
    assert feed.keeper.columns is not None
    feed.keeper.columns.add("fare", "string")
    feed.meet(2)
    assert list(feed.schema.refused_ids) == [2]
    assert "fare is string in the table and double in the rows" in feed.schema.refused_ids[2]


def test_a_schema_change_that_refuses_existing_rows_stops_the_feed() -> None:
    feed = Feed({2: V2})
    feed.keeper.broken = True
    with pytest.raises(SchemaIncompatible, match="changed by hand"):
        feed.meet(2)


def test_an_invalid_schema_is_skipped_with_a_note() -> None:
    """The decoder refuses the records of invalid schemas."""
    documents = [*(each for each, _ in MALFORMED), bomb(), deep(300), ["null", V1], "int"]
    writers: dict[int, Any] = {at + 2: each for at, each in enumerate(documents)}
    feed = Feed(writers)
    notes = feed.meet(*writers, 9_999)
    assert len(notes) == len(documents) + 1
    assert all(each.startswith("schema id ") for each in notes)
    assert feed.names == ["id"]
    assert set(feed.schema.covered_ids or ()) == {1, 9_999, *writers}
    assert feed.keeper.stored is not None
    assert feed.keeper.stored.ids == {1}


def test_a_refused_schema_of_another_record_is_judged_again_after_the_readers_schema_has_grown() -> None:
    feed = Feed({2: record(of("amount", "int"), name="Payment"), 3: V2})
    feed.meet(2, 3)
    assert feed.names == ["id", "fare"]
    assert feed.schema.refused_ids == {}
    assert set(feed.schema.covered_ids or ()) == {1, 3}
    feed.meet(2)
    assert feed.schema.refused_ids == {2: "the record is a Payment, but the table's rows are Trip"}


@pytest.mark.parametrize("kind", [ConfluentAvro, ConfluentJson, ConfluentProtobuf])
def test_a_column_of_numbers_accepts_times_only_from_avro(kind: type[ConfluentAvro]) -> None:
    feed = Feed({2: record(of("id", {"type": "int", "logicalType": "date"}), name="Trip")}, format=kind)
    feed.meet(2)
    assert list(feed.schema.refused_ids) == ([] if kind is ConfluentAvro else [2])
