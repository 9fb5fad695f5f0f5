"""What is to be true of a table of keyed rows, and of the history beside it. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakefeed.ledger.outcomes import total
from lakefeed.operations.verify.audit_rows import row_findings
from lakefeed.operations.verify.evidence import Evidence, Finding, Keyed


def upsert_findings(evidence: Evidence) -> Iterator[Finding]:
    """Each change is accounted for, each key is there once, and the table has grown by what the commits say."""
    keyed = evidence.keyed
    if keyed is None:
        return
    yield from _changes(evidence, keyed)
    yield from _keys(evidence, keyed)
    if keyed.history is not None:
        yield from _history(evidence, keyed)


def _changes(evidence: Evidence, keyed: Keyed) -> Iterator[Finding]:
    """records = dead letters + skipped + superseded + void + applied, for each commit."""
    void = 0
    for commit in evidence.commits:
        if commit.move is not None:
            continue
        at = commit.title
        upserts = commit.upserts
        if upserts is None:
            yield Finding(
                kind="appended",
                what=f"{at}: its rows were appended, not merged: a key may have many rows",
                batch_id=commit.batch_id,
                snapshot_id=commit.snapshot_id,
            )
            continue
        if not evidence.transformed and upserts.changes != (counted := total(commit.counts).rows):
            yield Finding(
                kind="changes",
                what=f"{at}: {upserts.changes:,} changes were merged, records less dead letters and skipped are "
                f"{counted:,}",
                batch_id=commit.batch_id,
                snapshot_id=commit.snapshot_id,
            )
        if upserts.superseded < 0 or upserts.void < 0 or upserts.deletes > upserts.keys:
            yield Finding(
                kind="merged",
                what=f"{at}: {upserts.changes:,} changes of {upserts.keys:,} keys cannot have inserted "
                f"{upserts.inserted:,}, changed {upserts.updated:,} and deleted {upserts.deleted:,} rows",
                batch_id=commit.batch_id,
                snapshot_id=commit.snapshot_id,
            )
        # A delete that found no row has nothing to do, where deletes are not remembered.
        void += upserts.void if keyed.marks else max(0, upserts.void - (upserts.deletes - upserts.deleted))
    if void:
        yield Finding(
            kind="void",
            what=f"{void:,} changes found a newer row of their key: they were read again after a rewind, or came late",
            fault=False,
        )


def _keys(evidence: Evidence, keyed: Keyed) -> Iterator[Finding]:
    for key, times in keyed.repeated:
        yield Finding(kind="key-twice", what=f"{times:,} rows have the key {key}")
    if keyed.rows is not None and keyed.rows != keyed.grown and evidence.whole:
        foreign = bool(evidence.others) or any(each.move and each.move.deleted_rows for each in evidence.commits)
        yield Finding(
            kind="row-count",
            what=f"the table has {keyed.rows:,} rows, its commits have inserted {keyed.grown:,} more than they deleted"
            + ("; a rewind or commits of no feed have deleted rows" if foreign else ""),
            fault=not foreign,
        )


def _history(evidence: Evidence, keyed: Keyed) -> Iterator[Finding]:
    """Every batch's changes are in the history, once."""
    history = keyed.history
    assert history is not None
    written = {each.ranges.ranges: each.rows for each in history.commits if each.move is None}
    began = False
    for commit in evidence.commits:
        if commit.move is not None or commit.upserts is None:
            continue
        found = written.get(commit.ranges.ranges)
        began = began or found is not None
        if found == commit.upserts.changes or (found is None and not began):
            continue
        yield Finding(
            kind="history",
            what=f"{commit.title}: {commit.upserts.changes:,} changes were "
            f"merged, the history has {found or 0:,} of them",
            fault=found is not None or history.whole,
            batch_id=commit.batch_id,
            snapshot_id=commit.snapshot_id,
        )
    first = next((each for each in evidence.commits if each.move is None), None)
    if first is not None and first.ranges.ranges not in written:
        yield Finding(
            kind="history-begins",
            what="the history begins later than the table, or older snapshots of it have expired",
            fault=False,
        )
    if keyed.history_placed is not None and first is not None and first.ranges.ranges in written:
        for each in row_findings(replace(evidence, keyed=None, placed=keyed.history_placed)):
            yield replace(each, kind=f"history-{each.kind}", what=f"history: {each.what}")
