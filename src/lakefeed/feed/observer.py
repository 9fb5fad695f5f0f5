"""The reports that a feed makes of itself while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from lakefeed.errors import LakefeedError
from lakefeed.feed.control import FeedControl
from lakefeed.feed.listener import TaskCounts
from lakefeed.feed.progress import FinishedBatch
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.records.columns import RowColumn
from lakefeed.stopwatch import Stopwatch


class RunObserver(Protocol):
    """Receives the reports of a run from the run's own threads; ``lakefeed.monitor`` has the one that every view reads.

    Attributes:
        control: takes operators' requests from other threads.
        columns: of the rows that are written, as of the newest batch.
        batch_requests: to S3, of all batches so far.
    """

    control: FeedControl
    columns: tuple[RowColumn, ...]

    @property
    def batch_requests(self) -> int: ...

    def note_path(self, path: str) -> None:
        """Show who reads the records and encodes the rows."""

    def opens(self, *, sink: str) -> None:
        """Note where the feed writes, before it is open."""

    def begin(
        self,
        *,
        sink: str,
        fence: str | None,
        position: Iterable[OffsetRange] = (),
        start: Mapping[str, Any] | None = None,
    ) -> None:
        """Note that the feed is open: where it writes, its fence, the ranges that it continues after, and why there."""

    def count_tasks_by(self, count: Callable[[], TaskCounts | None]) -> None:
        """Ask this for the tasks of the running batch, once a second while a batch takes long."""

    def tick(self, *, stops: bool = False) -> None:
        """Note that the driver's loop turns; ``stops`` if the feed ends after the current batch."""

    def batch(self, batch_id: int, ranges: Iterable[OffsetRange] = ()) -> AbstractContextManager[Stopwatch]:
        """Note that a batch of these ranges is written in this block; with an error it is not committed."""

    def round(self, number: int) -> AbstractContextManager[None]:
        """Note that tables of many are written in this block; the caller notes which have committed or failed."""

    def finish(self, batch: FinishedBatch, *, ends: Mapping[Partition, int] | None = None) -> FinishedBatch:
        """Add a finished batch, with how far the topics reached when it was planned; return it with its lag's age."""

    def committed(self, ranges: Iterable[OffsetRange]) -> None:
        """Note that the sink has just committed these ranges; ``batch`` does so by itself."""

    def reached(self, ranges: Iterable[OffsetRange]) -> None:
        """Note that the sink has the records up to the ends of these ranges."""

    def starts_at(self, position: Mapping[Partition, int]) -> None:
        """Note where partitions begin of which no record was read yet."""

    def observe_ends(self, ends: Mapping[Partition, int]) -> None:
        """Note how far all topics reach now; one that is not among them was deleted."""

    def restarted(self, why: str) -> None:
        """Note that the query starts again within the run, as after a change of the schema."""

    def audited(self, message: str, *, is_published: bool) -> None:
        """Note that the branch of a table was published, or that it was not and the feed continues."""

    def waits_for(self, error: LakefeedError | None) -> None:
        """Note the server's answer that the feed waits after; None when all servers answer again."""

    def paused(self, sinks: Mapping[str, str]) -> None:
        """Note which sinks wait after a failure, and why."""

    def failed(self, error: LakefeedError) -> None:
        """Note an error that does not end the feed, as of one table of many."""

    def tables_failed(self, tables: Mapping[str, LakefeedError]) -> None:
        """Note which tables of many have failed, by topic; those that are not among them continue."""
