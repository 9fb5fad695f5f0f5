"""Publishes the rows in a feed's branch after an audit of the table has passed.

Guarantee: readers see the table either as it was audited or as it was before. The commit moves ``main`` to exactly the
audited snapshot. The commit fails unless that snapshot descends from ``main``, so no rows of other writers are lost. An
interrupted publication is completed by the next one. To publish the same snapshot again changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted, set_properties
from lakefeed.clients.spark.jvm import java
from lakefeed.clients.spark.statements import Statement, run
from lakefeed.config.iceberg_sink import MAIN_BRANCH, Count, IcebergSinkConfig, TableExpectations
from lakefeed.config.keyed import OWN
from lakefeed.config.values import seconds_of
from lakefeed.errors import (
    AuditFailed,
    BranchDiverged,
    CheckpointMismatch,
    ConfigError,
    ResourceMissing,
)
from lakefeed.lazy import Column, DataFrame, SparkSession, StructType, sf, t
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.publication import AUDIT, Publication, State, StoredAudit, TableAudit
from lakefeed.ledger.snapshot_summary import BRANCH
from lakefeed.messages.printable import counted
from lakefeed.records.schema.fit import find_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Publisher:
    """Publishes the branch of one feed's table.

    Attributes:
        report: called with a message when an audit has passed, or has failed and does not stop the feed.
    """

    def __init__(self, spark: SparkSession, sink: IcebergSinkConfig, *, feed: str) -> None:
        self._spark, self._table, self._branch, self._feed = spark, sink.table, sink.branch or MAIN_BRANCH, feed
        self._settings = sink.publish
        self._ledger = IcebergLedger(spark, sink.table, feed, branch=sink.branch)
        self._last: float | None = None
        self.report: Callable[..., None] = lambda message, *, is_published: None

    @property
    def _expect(self) -> TableExpectations:
        return self._settings.expect if self._settings is not None else TableExpectations()

    def after_batch(self, *, is_new: bool = True, at_end: bool = False) -> str | None:
        """Publish if a publication is due; return a message for the user, or None.

        If the batch is not new, it was written by the last run. A failed audit then does not stop the feed, because the
        audit may pass after the next batches.

        Raises:
            AuditFailed: the audit has failed, with ``on_failure: stop``.
            BranchDiverged: the published table has commits that the branch lacks.
        """
        seconds = self._settings.seconds if self._settings is not None else None
        if seconds is None or not (at_end or self._is_time(seconds)):
            return None
        try:
            done = self.publish()
        except BranchDiverged as diverged:
            if self._stops(is_new=is_new):
                raise
            self.report(diverged.what, is_published=False)
            return diverged.what
        if done.state == "failed" and self._stops(is_new=is_new):
            raise self.failed(done)
        if done.state != "failed":
            self._last = time.time()
        if done.state == "nothing new":
            return None
        self.report(done.sentence, is_published=done.state == "published")
        return done.sentence

    def _stops(self, *, is_new: bool) -> bool:
        return is_new and self._settings is not None and self._settings.on_failure == "stop"

    def _is_time(self, seconds: int) -> bool:
        if seconds and self._last is None:
            stored = StoredAudit.of(self._ledger.properties(), self._feed)
            self._last = stored.at if stored is not None and not stored.failures else 0.0
        return not seconds or time.time() - (self._last or 0.0) >= seconds

    def publish(self, *, dry_run: bool = False) -> Publication:
        """Audit the branch's newest snapshot, and publish it if the audit passes; ``dry_run`` only audits.

        Raises:
            BranchDiverged: the published table has commits that the branch lacks.
            ConfigError: an expectation names a column that the table does not have.
            ResourceMissing: there is no such table, or no such branch.
        """
        if not self._spark.catalog.tableExists(self._table):
            raise ResourceMissing(f"there is no table {self._table}", hint="run the feed once: its start creates it")
        state = self._ledger.publication_state()
        if state == "missing" or self._ledger.branch() != self._branch:
            raise ResourceMissing(
                f"feed '{self._feed}' has no rows in the branch {self._branch} yet",
                where=f"table {self._table}",
                hint="run the feed once: its start creates the branch",
            )
        if state == "published":
            return self._publication("nothing new")
        if state == "diverged":
            raise self._diverged()
        head = self._ledger.head()
        done = self._audit(int(head.snapshotId()))
        if done.failures:
            if not dry_run:
                self._remember(done)
            return self._publication("failed", done)
        if dry_run:
            return self._publication("would be published", done)
        passed = {f"{AUDIT}.{self._feed}": StoredAudit(done.snapshot_id, time.time()).to_json()}
        # The branch may have a later batch by now; publish only the audited snapshot.
        if java(self._spark).commit.Publication.publish(self._ledger.loaded(), done.snapshot_id, passed) == "diverged":
            raise self._diverged()
        return self._publication("published", done)

    def discard(self) -> None:
        """Drop the unpublished rows: move the branch back to the published table. The feed reads their records again.

        The feed must not run. Raises a ConfigError if the feed has published nothing yet.
        """
        position = self._ledger.position()
        if position is None or not self._ledger.has_published():
            raise ConfigError(
                f"feed '{self._feed}' has published nothing yet: its branch cannot go back to a published table",
                where=f"table {self._table}",
                hint="to start over, drop the table, and name another checkpoint location if the file names one",
            )
        java(self._spark).commit.Publication.discard(self._ledger.loaded(), self._feed)

    def failed(self, done: Publication) -> AuditFailed:
        return AuditFailed(
            done.sentence,
            where=f"table {self._table}",
            hint="the rows are in the branch, and readers do not see them: correct publish.expect and run lakefeed "
            "tables publish; or drop the rows, and read their records again: lakefeed tables publish --discard",
        )

    def _audit(self, snapshot_id: int) -> TableAudit:
        staged = self._rows_at(snapshot_id)
        require_columns(self._expect, staged.schema, where=f"table {self._table}")
        main = self._ledger.loaded().currentSnapshot()
        published = None if main is None else self._rows_at(int(main.snapshotId()))
        return audit(staged, published, self._expect, snapshot_id=snapshot_id)

    def _rows_at(self, snapshot_id: int) -> DataFrame:
        table = quoted(tuple(self._table.split(".")))
        return run(self._spark, f"SELECT * FROM {table} VERSION AS OF {snapshot_id}")  # noqa: S608

    def _remember(self, failed: TableAudit) -> None:
        before = StoredAudit.of(self._ledger.properties(), self._feed)
        if before is None or (before.snapshot_id, before.failures) != (failed.snapshot_id, failed.failures):
            text = StoredAudit(failed.snapshot_id, time.time(), failed.failures).to_json()
            run(self._spark, set_properties(self._table, {f"{AUDIT}.{self._feed}": text}))

    def _diverged(self) -> BranchDiverged:
        return BranchDiverged(
            f"the table has commits in {MAIN_BRANCH} that the branch {self._branch} lacks: publishing would lose them",
            where=f"table {self._table}",
            hint="stop the other writer; then run lakefeed tables publish --discard, which moves the branch to the "
            "table's snapshot, so that the feed reads its unpublished records again",
        )

    def _publication(self, state: State, done: TableAudit | None = None) -> Publication:
        return Publication(table=self._table, branch=self._branch, state=state, audit=done)


MOST_NAMED = 3
_ROWS = f"{OWN}_rows"


def require_columns(expect: TableExpectations, columns: StructType, *, where: str) -> None:
    """Raise an error if an expectation names a missing column, or sets an age for a column that has no times."""
    fresh = () if expect.fresh is None else (expect.fresh.column,)
    for option, names in (
        ("fresh.column", fresh),
        ("null_share", tuple(expect.null_share)),
        *(("unique", tuple(each)) for each in expect.unique),
    ):
        for name in names:
            if find_field(columns, name) is None:
                raise ConfigError(
                    f"publish.expect.{option} names the column '{name}', which the table does not have",
                    where=where,
                    hint=f"name one of the table's columns: {', '.join(columns.names)}",
                )
    aged = find_field(columns, fresh[0]) if fresh else None
    if aged is not None and not isinstance(aged.dataType, t.TimestampType | t.TimestampNTZType | t.DateType):
        what = f"publish.expect.fresh.column: {aged.name} is {aged.dataType.simpleString()}, which has no age"
        raise ConfigError(what, where=where, hint="name a column with timestamps or dates")


def audit(staged: DataFrame, published: DataFrame | None, expect: TableExpectations, *, snapshot_id: int) -> TableAudit:
    """Compare a snapshot's rows with the expectations; ``published`` has the rows that readers see now.

    Spark reads all named columns once, and the columns of each list in ``unique`` once more.
    """
    nulls = tuple(expect.null_share)
    sums: dict[str, Column] = {"rows": sf.count(sf.lit(1))}
    for at, column in enumerate(nulls):
        sums[f"nulls_{at}"] = sf.count_if(sf.col(_name(column)).isNull())
    if expect.fresh is not None:
        newest = sf.max(sf.col(_name(expect.fresh.column)).cast("timestamp"))
        sums["newest"] = newest.cast("string")
        sums["age"] = sf.current_timestamp().cast("double") - newest.cast("double")
    [row] = staged.agg(*(column.alias(name) for name, column in sums.items())).collect()
    rows = int(row["rows"])
    new_rows = rows - (0 if published is None else published.count())

    def failures() -> Iterator[str]:
        if expect.rows is not None:
            yield from _outside(rows, expect.rows, f"the table has {counted(rows, 'row')}")
        if expect.new_rows is not None:
            yield from _outside(new_rows, expect.new_rows, f"there are {counted(new_rows, 'new row')}")
        if expect.fresh is not None:
            column, within = expect.fresh.column, expect.fresh.within
            if row["age"] is None:
                yield f"no row has a {column}"
            elif row["age"] > seconds_of(within):
                age = f"{row['newest']}, {row['age'] / 60:,.0f} minutes ago"
                yield f"the newest {column} is {age}, at most {within} is allowed"
        for at, column in enumerate(nulls):
            most, without = expect.null_share[column], int(row[f"nulls_{at}"])
            if without > most * rows:
                share = f"{without:,} of {rows:,} rows have no {column}"
                yield f"{share}: {without / rows:.2%}, at most {most:.2%} is allowed"
        for columns in expect.unique:
            yield from _repeated(staged, columns)

    return TableAudit(snapshot_id=snapshot_id, rows=rows, new_rows=new_rows, failures=tuple(failures()))


def _outside(number: int, bounds: Count, text: str) -> Iterator[str]:
    if bounds.at_least is not None and number < bounds.at_least:
        yield f"{text}, at least {bounds.at_least:,} are expected"
    if bounds.at_most is not None and number > bounds.at_most:
        yield f"{text}, at most {bounds.at_most:,} are allowed"


def _repeated(staged: DataFrame, columns: Sequence[str]) -> Iterator[str]:
    keys = [sf.col(_name(column)) for column in columns]
    of_key = staged.groupBy(*keys).agg(sf.count(sf.lit(1)).alias(_ROWS)).filter(sf.col(_ROWS) > 1)
    example = sf.max_by(sf.to_json(sf.struct(*keys)), _ROWS)
    [row] = of_key.agg(sf.count(sf.lit(1)).alias("keys"), sf.max(_ROWS).alias("most"), example.alias("key")).collect()
    if row["keys"]:
        several = f"{counted(row['keys'], 'value')} with several rows; {row['key']} has {row['most']:,}"
        yield f"{', '.join(columns)} is not unique: {several}"


def _name(column: str) -> str:
    return quoted(tuple(column.split(".")))


def branch_statements(
    ledger: IcebergLedger, sink: IcebergSinkConfig, feed: str, properties: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the statements that make the feed write to the pipeline file's branch; empty if it already does.

    ``properties`` are the properties of the table; empty for a new table.

    Raises:
        ConfigError: the feed's present branch has unpublished rows, or the new branch exists at another snapshot.
        CheckpointMismatch: the feed's present branch was removed.
    """
    key = f"{BRANCH}.{feed}"
    have, want = properties.get(key), sink.branch
    table = quoted(tuple(sink.table.split(".")))
    if have is not None:
        state = ledger.publication_state()
        if state == "missing":
            raise CheckpointMismatch(
                f"the branch {have} of the table was removed, and with it the position of feed '{feed}'",
                where=f"table {sink.table}",
                hint=f"create the branch at its last snapshot: "
                f"ALTER TABLE {sink.table} CREATE BRANCH {have} AS OF VERSION …",
            )
        if have == want:
            return ()
        if state != "published":
            raise ConfigError(
                f"feed '{feed}' has unpublished rows in the branch {have}",
                where=f"table {sink.table}",
                hint=f"set the branch back to {have}, run lakefeed tables publish, and then change the branch",
            )
    if want is None:
        return () if have is None else (Statement.of(f"ALTER TABLE {table} UNSET TBLPROPERTIES (:key)", {"key": key}),)
    if properties and not ledger.branch_is_free(want):
        raise ConfigError(
            f"the table already has a branch {want}, at another snapshot than {MAIN_BRANCH}",
            where=f"table {sink.table}",
            hint=f"name another branch; or remove the existing branch: ALTER TABLE {sink.table} DROP BRANCH {want}",
        )
    return (
        f"ALTER TABLE {table} CREATE BRANCH IF NOT EXISTS {quoted((want,))}",
        set_properties(sink.table, {key: want}),
    )
