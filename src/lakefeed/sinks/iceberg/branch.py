"""Makes a feed write to a branch of its table, or leave a branch whose rows are all published.

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
    """Return the statements that make the feed write to the pipeline file's branch; none if it is the present branch.

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
                hint=f"restore branch: {have} in the file, run lakefeed tables publish, and then change the branch",
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
