"""The document of the newest dead letters by reason, from a real table with hostile content."""

import itertools
import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ResourceMissing, Unreachable
from lakefeed.sinks.dead_letters.store import Content, DeadLetterReader, RecentLetters
from lakefeed.sinks.dead_letters.table import read_recent
from lakefeed_dashboard.details.dead_letters import dead_letters_document, shown
from tests.support.pipeline_text import feed_config as pipeline

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("feed", pa.string()),
        pa.field("batch_id", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("failed_at", pa.timestamp("us", tz="UTC")),
        pa.field("replay", pa.string()),
    ]
)


def letter(offset: int, reason: str, **changes: Any) -> dict[str, Any]:
    return {
        "feed": "hits",
        "batch_id": offset // 10,
        "topic": "hits",
        "partition": 0,
        "offset": offset,
        "timestamp": NOON,
        "key": b"k",
        "value": f"value {offset}".encode(),
        "reason": reason,
        "schema_id": None,
        "failed_at": NOON + timedelta(seconds=offset),
        "replay": None,
        **changes,
    }


def written(catalog: SqlCatalog, *batches: list[dict[str, Any]]) -> Table:
    table = catalog.create_table("web.letters", SCHEMA)
    for batch in batches:
        table.append(pa.Table.from_pylist(batch, schema=SCHEMA))
    return table


class Reader:
    kind, name = "table", "lake.web.letters"

    def __init__(self, found: RecentLetters | Exception) -> None:
        self._found = found

    def find(self, choice: Any, *, whole: bool = False) -> list[dict[str, Any]]:
        raise NotImplementedError

    def recent(self, feed: str, *, most: int, samples: int, longest: int) -> RecentLetters:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def config(**changes: Any) -> PipelineConfig:
    return pipeline(dead_letters={"table": "lake.web.letters"}, **changes)


def document_of(*readers: DeadLetterReader, **changes: Any) -> dict[str, Any]:
    return dead_letters_document(config(**changes), lambda: (("hits", reader) for reader in readers), now=0.0)


def test_dead_letters_are_grouped_by_reason_with_the_newest_as_samples(catalog: SqlCatalog) -> None:
    table = written(
        catalog,
        [letter(number, f"not JSON at character {number}") for number in range(10)],
        [letter(20, "zip is missing"), letter(21, "another feed's", feed="other")],
    )
    document = document_of(Reader(read_recent(table, "hits", most=1000, samples=3, longest=2000)))
    json_, missing = document["reasons"]
    assert (json_["reason"], json_["count"]) == ("not JSON at character #", 10)
    assert [sample["offset"] for sample in json_["samples"]] == [9, 8, 7]
    assert json_["samples"][0]["value"] == "value 9"
    assert json_["samples"][0]["at"] == "2026-01-01T12:00:00Z"
    assert (missing["count"], missing["samples"][0]["key"]) == (1, "k")
    assert (document["complete"], document["replayable"], document["error"]) == (True, True, None)
    json.dumps(document)


def test_read_recent_reads_only_the_newest_files_of_a_long_table(catalog: SqlCatalog) -> None:
    table = written(catalog, *([letter(at * 10 + number, "old") for number in range(10)] for at in range(5)))
    found = read_recent(table, "hits", most=15, samples=2, longest=2000)
    assert found.is_whole is False
    [(_, count, letters)] = found.reasons
    assert (count, [each["offset"] for each in letters]) == (15, [49, 48])


def test_read_recent_samples_each_of_a_thousand_reasons(catalog: SqlCatalog) -> None:
    words = ("".join(letters) for letters in itertools.product("abcdefghij", repeat=3))
    table = written(catalog, [letter(number, f"no field {word}") for number, word in enumerate(words)])
    found = read_recent(table, "hits", most=1000, samples=3, longest=2000)
    assert len(found.reasons) == 1000
    assert all(of[0]["content"][1].data == f"value {of[0]['offset']}".encode() for _, _, of in found.reasons)


@pytest.mark.waits
def test_read_recent_copies_only_the_newest_rows_of_a_large_file_from_arrow_to_python(catalog: SqlCatalog) -> None:
    many = pa.Table.from_pylist([letter(0, "bad")] * 200_000, schema=SCHEMA)
    offsets = pa.array(range(many.num_rows), pa.int64())
    table = catalog.create_table("web.letters", SCHEMA)
    table.append(many.set_column(SCHEMA.get_field_index("offset"), "offset", offsets))
    tracemalloc.start()
    try:
        found = read_recent(table, "hits", most=100, samples=2, longest=2000)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000  # All letters as dicts would take 140 MB.
    finally:
        tracemalloc.stop()
    [(_, count, letters)] = found.reasons
    assert (count, [each["offset"] for each in letters], found.is_whole) == (100, [199_999, 199_998], False)


def test_read_recent_returns_no_reasons_for_an_empty_table(catalog: SqlCatalog) -> None:
    assert read_recent(written(catalog), "hits", most=10, samples=2, longest=10) == RecentLetters()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, (None, None, None, False)),
        (b"", ("", "text", 0, False)),
        (b"<script>alert(1)</script>", ("<script>alert(1)</script>", "text", 25, False)),
        ("\u202eabc\x1b[31m".encode(), ("\u202eabc\x1b[31m", "text", 11, False)),
        (b"\x00\xff", ("00ff", "hex", 2, False)),
        (b"x" * 1_000_000, ("x" * 2000, "text", 1_000_000, True)),
        (b"x" * 1999 + "€".encode() * 9, ("x" * 1999, "text", 2026, True)),
        (b"\xff" * 1_000_000, ("ff" * 2000, "hex", 1_000_000, True)),
    ],
)
def test_content_is_shown_as_text_or_hexadecimal_and_truncated(data: bytes | None, expected: tuple[Any, ...]) -> None:
    found = shown("value", Content.of(data, 2000))
    assert (found["value"], found["value_encoding"], found["value_bytes"], found["value_cut"]) == expected


def test_the_document_shows_the_error_of_a_reader_that_fails() -> None:
    document = document_of(
        Reader(Unreachable("the catalog does not answer", where="http://c")),
        Reader(ResourceMissing("there is no table")),
    )
    assert (document["reasons"], document["error"]) == ([], "the catalog does not answer (http://c)")


def test_the_document_shows_that_dead_letters_cannot_be_replayed() -> None:
    assert document_of(sink={"memory": {}})["replayable"] is False
    assert document_of(sinks={"now": {"memory": {}}})["replayable"] is False
    without = dead_letters_document(pipeline(), lambda: (), now=0.0)
    assert (without["kept"], without["replayable"], without["reasons"]) == (None, False, [])
