"""The state of a feed's branch and of its audits, read without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.ledger.snapshots import ancestors, branch_of, commits_of
from lakefeed.messages.printable import counted

if TYPE_CHECKING:
    from pyiceberg.table import Table

AUDIT = "lakefeed.audit"
"""The prefix of the table property ``lakefeed.audit.<feed>``, whose value is a ``StoredAudit`` as JSON."""


@dataclass(frozen=True, kw_only=True)
class TableAudit:
    """The result of an audit.

    Attributes:
        rows: the number of rows in the branch.
        new_rows: ``rows`` minus the rows of the published table; negative if rows were deleted.
        failures: for every expectation that failed, a sentence with the numbers.
    """

    snapshot_id: int
    rows: int
    new_rows: int
    failures: tuple[str, ...]


State = Literal["published", "nothing new", "failed", "would be published"]


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The result of ``lakefeed tables publish``; ``audit`` is None if the branch had no unpublished commit."""

    table: str
    branch: str
    state: State
    audit: TableAudit | None = None

    @property
    def sentence(self) -> str:
        if self.audit is None:
            return f"nothing in branch {self.branch} of {self.table} is new"
        rows = f"branch {self.branch} of {self.table} with {self.audit.new_rows:+,} rows"
        if self.state == "failed":
            return f"{rows} is not published: {'; '.join(self.audit.failures)}"
        return f"{rows} {'is' if self.state == 'published' else 'would be'} published"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StoredAudit:
    """The result of a feed's last audit, as stored in a table property; ``at`` is in seconds since 1970."""

    snapshot_id: int
    at: float
    failures: tuple[str, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str], feed: str) -> StoredAudit | None:
        """Read the table property; None if it is missing or not valid."""
        try:
            document = json.loads(properties[f"{AUDIT}.{feed}"])
            return cls(int(document["snapshot-id"]), float(document["at"]), tuple(map(str, document["failures"])))
        except (KeyError, TypeError, ValueError):
            return None

    def to_json(self) -> str:
        document = {"snapshot-id": self.snapshot_id, "at": round(self.at, 3), "failures": self.failures}
        return json.dumps(document, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class BranchState:
    """The state of a feed's branch.

    Attributes:
        unpublished: the number of the feed's commits that readers do not see.
        since: the time of the oldest unpublished commit, in seconds since 1970.
        is_diverged: whether the published table has commits that the branch lacks, so the branch cannot be published.
        audit: the last audit; None before the first one.
    """

    branch: str
    unpublished: int
    since: float | None
    is_diverged: bool
    audit: StoredAudit | None

    @property
    def sentence(self) -> str:
        if self.unpublished:
            since = f"{datetime.fromtimestamp(self.since or 0.0, UTC):%Y-%m-%d %H:%M} UTC"
            text = f"{self.branch}: {counted(self.unpublished, 'commit')} not published yet, the oldest from {since}"
        else:
            text = f"{self.branch}: all commits are published"
        if self.is_diverged:
            text += "; the branch cannot be published: it lacks commits of the published table"
        if self.audit is not None and self.audit.failures:
            text += f"; the last audit failed: {'; '.join(self.audit.failures)}"
        return text

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def branch_state(table: Table, feed: str) -> BranchState | None:
    """Return the state of a feed's branch; None if the feed writes to the main branch."""
    branch = branch_of(table.properties, feed)
    if branch is None:
        return None
    line, published = ancestors(table, feed)[0], ancestors(table)[0]
    published_ids = {snapshot.snapshot_id for snapshot in published}
    waiting = [snapshot for snapshot in line if snapshot.snapshot_id not in published_ids]
    times = {snapshot.snapshot_id: snapshot.timestamp_ms / 1000 for snapshot in waiting}
    commits = list(commits_of(waiting, feed))
    return BranchState(
        branch=branch,
        unpublished=len(commits),
        since=min((times[commit.snapshot_id or 0] for commit in commits), default=None),
        is_diverged=bool(waiting and published and published[-1] not in line),
        audit=StoredAudit.of(table.properties, feed),
    )
