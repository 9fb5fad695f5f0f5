"""Options of a run, and its summary."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.feed.progress.progress import BatchProgress
from lakefeed.feed.progress.requests import S3Requests
from lakefeed.ledger.outcomes import Counts


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one run of a pipeline.

    Attributes:
        once: write the records that the topics have at the start, and end.
        stop: set it to end after the current batch.
        on_batch: called after each batch.
        on_note: called with each message about the start.
        accept_loss: continue although records are lost; the ledger records it.
    """

    once: bool
    stop: threading.Event
    on_batch: Callable[[BatchProgress], None]
    on_note: Callable[[str], None]
    accept_loss: bool


@dataclass(frozen=True)
class RunSummary:
    """The result of one run of a pipeline.

    Attributes:
        batches: micro-batches committed; those that the sink had already are not counted.
        records: records read from the topics.
        rows: rows that the sink has written; of merged changes those that were inserted, changed or deleted.
        dead_letters: records that became dead letters.
        skipped: records left out because the pipeline says so.
        files: data files written; None where the sink does not say.
        seconds: from the start of the query to its end.
        s3_requests: all requests of driver and executors in that time by S3 operation, other queries' too.
        requests: this feed's own requests to S3, by operation and key class.
        startup_requests: those of them that were made before the first batch.
        batches_over_budget: batches that made more requests than the pipeline's budget.
        tables: by topic, where each topic goes to a table of its own.
        paused: sinks that have failed and are paused, and why.
        repeated: rows of a batch that the run before had begun; a sink that is at-least-once may have them twice.
    """

    batches: int
    records: int
    rows: int
    dead_letters: int
    skipped: int
    files: int | None
    seconds: float
    s3_requests: Mapping[str, int]
    requests: S3Requests
    startup_requests: S3Requests
    batches_over_budget: int
    tables: tuple[TableSummary, ...] = ()
    paused: Mapping[str, str] = field(default_factory=dict)
    repeated: int = 0

    @property
    def rows_per_second(self) -> float:
        """Over the whole run, the cold start included."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            **asdict(self),
            "requests": self.requests.as_dict(),
            "startup_requests": self.startup_requests.as_dict(),
            "rows_per_second": round(self.rows_per_second),
        }


@dataclass(frozen=True, kw_only=True)
class TableSummary:
    """The result of one run for one topic.

    Attributes:
        topic: its name.
        table: where its rows go.
        batches: batches committed.
        counts: what became of its records.
        rows: rows written.
        failure: why it is paused or stopped; None if it is not.
    """

    topic: str
    table: str
    batches: int
    counts: Counts
    rows: int
    failure: str | None
