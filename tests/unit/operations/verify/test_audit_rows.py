"""``verify`` finds every kind of fault in an upsert feed's commits, and no fault in correct commits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.ledger.outcomes import Counts
from lakefeed.ledger.snapshot_summary import Commit, Upserts
from lakefeed.ledger.snapshots import OtherCommit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.evidence import Evidence, Keyed, Letters
from lakefeed.operations.verify.row_offsets import RowCoverage

RAW = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))


def feed(batches: list[Upserts]) -> tuple[Commit, ...]:
    """Return a commit for each batch of changes; all changes are from one partition."""
    commits, at = [], 0
    for number, upserts in enumerate(batches):
        ranges = OffsetRanges((OffsetRange("t", 0, at, at + upserts.changes),), {"t": "one"})
        at += upserts.changes
        counts = {("t", 0): Counts(upserts.changes)} if upserts.changes else {}
        commits.append(
            Commit("f", number, ranges, snapshot_id=number, counts=counts, rows=upserts.landed, upserts=upserts)
        )
    return tuple(commits)


def evidence(batches: list[Upserts], **keyed: Any) -> Evidence:
    commits = feed(batches)
    grown = sum(each.inserted - each.deleted for each in batches)
    history = Letters(tuple(replace(each, upserts=None, rows=(each.upserts or Upserts()).changes) for each in commits))
    known = {"grown": grown, "rows": grown, "history": history, **keyed}
    # These tests do not check topics, so the evidence has none.
    return Evidence(commits=commits, recorded=commits[-1].ranges, keyed=Keyed(**known))


def kinds(found: Evidence, *, faults: bool = True) -> list[str]:
    return [each.kind for each in findings(found) if each.fault is faults and each.kind != "topic-missing"]


def upserts(raw: tuple[int, int, int, int, int]) -> Upserts:
    inserted, updated, deleted, without_row, superseded = raw
    keys = inserted + updated + deleted + without_row
    return Upserts(keys + superseded, keys, deleted + without_row, inserted, updated, deleted)


GOOD = [upserts((5, 0, 0, 1, 2)), upserts((1, 3, 2, 0, 0))]


@settings(deadline=None)
@given(st.lists(RAW, min_size=1, max_size=6))
def test_verify_finds_nothing_if_all_changes_are_accounted_for(raws: list[tuple[int, int, int, int, int]]) -> None:
    found = evidence([upserts(raw) for raw in raws])
    assert kinds(found) == []
    assert kinds(found, faults=False) == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"changes": 7}, "changes"), ({"inserted": 9}, "merged"), ({"keys": 99}, "merged"), ({"deletes": 99}, "merged")],
)
def test_verify_finds_a_commit_whose_counts_do_not_add_up(change: Mapping[str, int], kind: str) -> None:
    found = evidence(GOOD)
    first = found.commits[0]
    wrong = replace(first, upserts=replace(first.upserts or Upserts(), **change))
    assert kind in kinds(replace(found, commits=(wrong, *found.commits[1:])))


def test_verify_finds_an_append_to_a_table_of_upserts() -> None:
    found = evidence(GOOD)
    commits = (found.commits[0], replace(found.commits[1], upserts=None))
    assert "appended" in kinds(replace(found, commits=commits))


def test_verify_compares_the_number_of_rows_with_the_commits_unless_another_client_has_written() -> None:
    found = evidence(GOOD, rows=99)
    assert kinds(found) == ["row-count"]
    others = (OtherCommit(5, "append", 1, 0),)
    assert kinds(replace(found, foreign_commits=others)) == []
    assert "row-count" in kinds(replace(found, foreign_commits=others), faults=False)


def test_verify_finds_a_key_with_two_rows() -> None:
    assert kinds(evidence(GOOD, repeated=(("7", 2),))) == ["key-twice"]


def test_verify_notes_changes_that_were_older_than_the_stored_row() -> None:
    stale = [*GOOD, Upserts(changes=3, keys=3)]
    assert kinds(evidence(stale), faults=False) == ["void"]
    # With on_delete: mark, a delete writes a row even if its key had no row.
    assert kinds(evidence([upserts((1, 0, 0, 1, 0))], marks=True), faults=False) == ["void"]


def test_verify_finds_a_history_that_lacks_changes_of_a_batch() -> None:
    found = evidence(GOOD)
    assert found.keyed is not None
    commits = found.keyed.history.commits if found.keyed.history else ()
    for wrong in (commits[:1], (commits[0], replace(commits[1], rows=1))):
        keyed = replace(found.keyed, history=Letters(wrong))
        assert kinds(replace(found, keyed=keyed)) == ["history"]
    begun = replace(found.keyed, history=Letters(commits[1:]))
    assert kinds(replace(found, keyed=begun), faults=False) == ["history-begins"]
    twice = replace(found.keyed, history_coverage={("t", 0): RowCoverage(rows=15, offsets=14, repeated=((3, 2),))})
    assert kinds(replace(found, keyed=twice)) == ["history-duplicates"]
