"""Prove from metadata and the broker, without Spark, that a feed's table has every record once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from lakefeed.clients.kafka.topics import partitions_of
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.ledger.outcomes import ZERO, total
from lakefeed.ledger.snapshot_summary import Upserts
from lakefeed.ledger.stateful_batches import without_batches
from lakefeed.messages.printable import ReadableResult, counted
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.evidence import Evidence, Finding, collect_evidence, spans


@dataclass(frozen=True)
class PartitionResult:
    """A partition's landed offsets, and the topic's offsets; these are None if the topic is gone or another one."""

    topic: str
    partition: int
    start: int
    end: int
    topic_start: int | None
    topic_end: int | None

    @property
    def lag(self) -> int | None:
        """The number of offsets in the topic that the table lacks; transactions leave some without a record."""
        return None if self.topic_end is None else max(0, self.topic_end - self.end)


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(ReadableResult):
    """The result of a verification.

    Attributes:
        whole: whether the verified commits are all commits of the feed; if not, older snapshots have expired.
        rows: the feed's rows in the table: rows of the commits, less rows that a rewind or a later batch has deleted.
            If older snapshots have expired, it includes the rows that were there before.
        offsets_again: offsets that were read again after a rewind; ``offsets`` counts them twice.
        backfills: the number of backfill commits; their records and rows are included in the other numbers.
        replayed: rows that replays of dead letters wrote.
        upserts: the outcome of all changes; None if rows are appended.
        files: the number of files of the newest snapshots that the store has with the right size, manifests included.
    """

    feed: str
    table: str
    deep: bool
    commits: int
    whole: bool
    first_batch: int | None
    last_batch: int | None
    offsets: int
    records: int
    dead_letters: int
    skipped: int
    rows: int
    rows_added: int
    rows_rewound: int
    rows_before: int
    offsets_again: int
    backfills: int
    replayed: int
    upserts: Upserts | None
    files: int
    partitions: tuple[PartitionResult, ...]
    findings: tuple[Finding, ...]

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        verdict = counted(len(self.faults), "fault") if self.faults else "each record once"
        return f"{self.feed} in {self.table}: {verdict if self.commits else 'no commits yet'}"

    @property
    def figures(self) -> dict[str, str]:
        """The figures that a notebook shows, faults first."""
        faults = {f"fault {number}": finding.what for number, finding in enumerate(self.faults[:10], 1)}
        return {
            **faults,
            "commits": f"{self.commits:,}",
            "offsets": f"{self.offsets:,}",
            "records": f"{self.records:,}",
            "rows": f"{self.rows:,}",
            "dead letters": f"{self.dead_letters:,}",
            "skipped": f"{self.skipped:,}",
        }

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Findings that disprove exactly-once."""
        return tuple(finding for finding in self.findings if finding.fault)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """Findings that are no faults: information for users, or things that are unknown."""
        return tuple(finding for finding in self.findings if not finding.fault)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        partitions = [{**asdict(part), "lag": part.lag} for part in self.partitions]
        return {"verified": not self.faults, **asdict(self), "partitions": partitions}


def verify_feed(config: PipelineConfig, *, connections: Connections, deep: bool = False) -> Verification:
    """Compare a feed's commits, its dead letters and the broker's offsets with each other.

    The feed may run meanwhile: this reads the table at one moment. It reads metadata, and the positions of the dead
    letters. The broker counts again only where a range has fewer records than offsets. With ``deep`` it also reads the
    topic, partition and offset of all rows. Raises a ConfigError if the sink, or with ``deep`` the table, has none.
    """
    config.sink.require("verify")
    evidence = collect_evidence(config, connections, deep=deep)
    commits = evidence.commits
    counts = sum((total(each.counts) for each in evidence.landed), ZERO)
    return Verification(
        feed=config.name,
        table=config.sink.chosen.table_name,
        deep=deep,
        commits=len(commits),
        whole=evidence.history_complete,
        first_batch=commits[0].batch_id if commits else None,
        last_batch=commits[-1].batch_id if commits else None,
        offsets=sum(without_batches(each.ranges).records for each in evidence.landed),
        records=counts.records,
        dead_letters=counts.dead_letters,
        skipped=counts.skipped,
        rows=evidence.older_rows + sum(each.grown for each in (*evidence.landed, *evidence.replays)),
        rows_added=sum(each.rows for each in evidence.landed),
        rows_rewound=-sum(each.grown for each in commits if each.move is not None),
        rows_before=evidence.older_rows,
        offsets_again=sum(end - start for each in commits for start, end in each.rewound.values()),
        backfills=len(evidence.backfills),
        replayed=sum(each.rows for each in evidence.replays),
        upserts=Upserts.sum(each.upserts for each in commits) if evidence.keyed else None,
        files=evidence.files.present,
        partitions=tuple(_partition_results(evidence)),
        findings=tuple(findings(evidence)),
    )


def _partition_results(evidence: Evidence) -> Iterator[PartitionResult]:
    last = spans(evidence.commits[-1:])
    there = partitions_of(evidence.same_topics)
    for key, (start, end) in sorted(spans(evidence.landed).items()):
        # After a rewind, the position is before the end of what has landed once.
        _, end = last.get(key, (start, end))
        offsets = (there[key].start_offset, there[key].end_offset) if key in there else (None, None)
        yield PartitionResult(*key, start, end, *offsets)
