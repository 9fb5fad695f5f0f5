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
    """How a pipeline is run.

    Attributes:
        once: land what is there at the start, and end.
        stop: set it to end after the batch at hand.
        on_batch: called after each batch.
        on_note: called with each note for the user.
        accept_loss: resume although records are lost; the ledger says so.
    """

    once: bool
    stop: threading.Event
    on_batch: Callable[[BatchProgress], None]
    on_note: Callable[[str], None]
    accept_loss: bool


@dataclass(frozen=True)
class RunSummary:
    """What one run of a pipeline did.

    Attributes:
        batches: micro-batches landed, those that only found their rows in the table already not counted.
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
        paused: sinks that have failed and wait, and why.
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
    """What one run did for one topic.

    Attributes:
        topic: its name.
        table: where its rows go.
        batches: batches landed.
        counts: what became of its records.
        rows: rows landed.
        failure: why it waits or has stopped; None if all is well.
    """

    topic: str
    table: str
    batches: int
    counts: Counts
    rows: int
    failure: str | None
