"""The batch writer reacts to each outcome of an attempt to write a batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakefeed.errors import DriverReplaced
from lakefeed.feed.batch_reader import PlannedRestart
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.ledger.outcomes import Counts, LeftOutFields, SchemasMissing
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.base import BaseSink

RANGES = OffsetRanges((OffsetRange("t", 0, 0, 3),), {"t": "A"})
BATCH: Any = SimpleNamespace()
MISSING = SchemasMissing(frozenset({7}))
Refusal = SchemasMissing | None


class Outcomes:
    """A stand-in for a counter; ``refusal`` is the reason to refuse the commit, or None."""

    commit_id = "c"
    counts = Counts(records=3, dead_letters=2)
    reasons = ()
    left_out_field = ""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.covered: frozenset[int] | None = None

    def seconds_since_allowed(self) -> float:
        return 0.0

    def cover(self, ids: frozenset[int]) -> None:
        self.covered = ids


class Schema:
    """A stand-in for a reader's schema; a writer's schema may change it."""

    def __init__(self, *, changes: bool) -> None:
        self.spec = 0
        self.refused_ids: dict[int, str] = {}
        self.covered_ids = frozenset({1})
        self._changes = changes

    def merge_writer_schemas(self, ids: frozenset[int], *, rows_of: object) -> None:
        self.covered_ids |= ids
        self.spec += self._changes

    def notes(self) -> tuple[str, ...]:
        return ()


class Rows:
    """A stand-in that builds no rows."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def note_columns(self, rows: object) -> None:
        """Do nothing."""

    def notes(self) -> tuple[str, ...]:
        return self.schema.notes()


class Counting:
    """Returns one counter after the other, one for each attempt."""

    def __init__(self, *refusals: Refusal, is_part_of_query: bool = False) -> None:
        self.outcomes = [Outcomes(refusal) for refusal in refusals]
        self.is_part_of_query = is_part_of_query
        self.attempts = self.ended = 0

    @contextmanager
    def attempt(self, batch: object, commit: object) -> Iterator[tuple[object, Outcomes]]:
        self.attempts += 1
        yield batch, self.outcomes[self.attempts - 1]

    def is_committed(self, batch: object, commit: Commit) -> bool:
        return False

    def end_batch(self) -> None:
        self.ended += 1


class Sink(BaseSink):
    """Fails a commit, as Spark does, if the counter of the attempt has refused it."""

    def __init__(self, counting: Counting) -> None:
        self._counting = counting

    def land(self, rows: object, commit: Commit, *, commit_id: str) -> int:
        if self._counting.outcomes[self._counting.attempts - 1].refusal is not None:
            raise RuntimeError("commit refused")
        return 3


@contextmanager
def loud() -> Iterator[None]:
    yield


def writer_of(counting: Any, monkeypatch: pytest.MonkeyPatch, *, changes: bool = True) -> BatchWriter:
    monkeypatch.setattr("lakefeed.feed.batch_writer.quietly", loud)
    rows: Any = Rows(Schema(changes=changes))
    sink: Any = Sink(counting)
    spark: Any = None
    return BatchWriter(spark, feed="f", sink=sink, rows=rows, reader=counting)


@pytest.mark.parametrize(("changes", "attempts"), [(True, 1), (False, 2)], ids=["another schema", "the same schema"])
def test_a_query_restarts_only_if_the_schema_changes(
    changes: bool, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting: Any = Counting(MISSING, None, is_part_of_query=True)
    writer = writer_of(counting, monkeypatch, changes=changes)
    if changes:
        with pytest.raises(PlannedRestart):
            writer.write(BATCH, RANGES, 0)
    else:
        assert writer.write(BATCH, RANGES, 0).rows == 3
    assert (counting.attempts, counting.ended) == (attempts, 1)


def test_a_replaced_driver_does_not_report_a_batch_of_the_new_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the batch were reported, Spark would log it in the replaced driver's checkpoint before the new driver does."""
    counting = Counting()
    monkeypatch.setattr(counting, "is_committed", lambda batch, commit: True)
    writer = writer_of(counting, monkeypatch)
    sink: Any = writer.sink
    sink.fence_taken = lambda: "2 other"
    with pytest.raises(DriverReplaced):
        replace(writer, fence="1 own").write(BATCH, RANGES, 0)
    assert replace(writer, fence="2 other").write(BATCH, RANGES, 0).replayed


def test_an_unknown_field_is_noted_at_its_first_record_and_each_time_the_count_grows_100_fold() -> None:
    fields = LeftOutFields()

    def notes(left_out: int) -> list[str]:
        outcomes: Any = SimpleNamespace(counts=Counts(left_out=left_out), left_out_field="inner.b")
        return list(fields.notes(outcomes))

    [first] = notes(2)
    assert first == "the JSON field inner.b has no column and is left out; 2 records of this run have such fields"
    assert [len(notes(each)) for each in (0, 197, 1, 0, 19_799)] == [0, 0, 1, 0, 0]
    assert "; 20,000 records of this run" in notes(1)[0]
