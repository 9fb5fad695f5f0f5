"""Lets a feed land in a branch of its table, or leave a branch; the branch must have no unpublished rows of the feed.

The table's property ``lakefeed.branch.<feed>`` names the branch. Everything that reads the feed's ledger reads this
property, so no command needs the branch as an option. The commit check refuses the feed's commits in other branches.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.clients.iceberg.sql import quoted, set_properties
from lakefeed.clients.spark.statements import Statement
from lakefeed.config.iceberg_sink import MAIN_BRANCH, IcebergSinkConfig
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import BRANCH


def branch_statements(
    ledger: IcebergLedger, sink: IcebergSinkConfig, feed: str, properties: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the statements that make the feed land in the pipeline file's branch; none if it already does.

    ``properties`` are the table's; empty for a new table.

    Raises:
        ConfigError: the branch to leave has unpublished rows, or the new branch exists at another snapshot.
        CheckpointMismatch: the branch was removed.
    """
    key = f"{BRANCH}.{feed}"
    have, want = properties.get(key), sink.branch
    table = quoted(tuple(sink.table.split(".")))
    if have is not None:
        state = ledger.publication_state()
        if state == "missing":
            raise CheckpointMismatch(
                f"the branch {have} of the table is gone, and with it the position of feed '{feed}'",
                where=f"table {sink.table}",
                hint=f"create it at its last snapshot: ALTER TABLE {sink.table} CREATE BRANCH {have} AS OF VERSION …",
            )
        if have == want:
            return ()
        if state != "published":
            raise ConfigError(
                f"feed '{feed}' has landed rows in the branch {have} that are not published",
                where=f"table {sink.table}",
                hint=f"put branch: {have} back, and run lakefeed tables publish; then change it",
            )
    if want is None:
        return () if have is None else (Statement.of(f"ALTER TABLE {table} UNSET TBLPROPERTIES (:key)", {"key": key}),)
    if properties and not ledger.branch_is_free(want):
        raise ConfigError(
            f"the table has a branch {want} already, which is not at the snapshot of {MAIN_BRANCH}",
            where=f"table {sink.table}",
            hint=f"name another branch; or remove it: ALTER TABLE {sink.table} DROP BRANCH {want}",
        )
    return (
        f"ALTER TABLE {table} CREATE BRANCH IF NOT EXISTS {quoted((want,))}",
        set_properties(sink.table, {key: want}),
    )
