"""Proves from the table and the broker that the table has each record exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.clients.kafka.topics import partitions_of
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.ledger.outcomes import ZERO, total
from lakefeed.ledger.snapshot_summary import Upserts
from lakefeed.messages.printable import ReadableResult, counted
from lakefeed.offsets.ranges import without_batches
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.evidence import Evidence, Finding, collect_evidence, spans
from lakefeed.plugins import load_route


@dataclass(frozen=True)
class PartitionResult:
    """A partition's committed offsets, and the topic's offsets, which are None if it was deleted or recreated."""

    topic: str
    partition: int
    start: int
    end: int
    topic_start: int | None
    topic_end: int | None

    @property
    def lag(self) -> int | None:
        """The number of uncommitted offsets; transactions leave some offsets without a record."""
        return None if self.topic_end is None else max(0, self.topic_end - self.end)


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(ReadableResult):
    """The result of a verification.

    Attributes:
        whole: whether the table still has all commits of the feed; otherwise older snapshots have expired.
        rows: the number of the feed's rows in the table, without rows that a rewind or a later batch has deleted;
            ``rows_before`` of them are older than the oldest remaining snapshot.
        offsets_again: the number of offsets that the feed read again after a rewind; ``offsets`` counts them twice.
        backfills: the number of backfill commits; the other numbers include their records and rows.
        replayed: the number of rows that replays of dead letters have written.
        upserts: the outcome of all changes; None if the sink appends rows.
        files: the number of files, including manifests, that the store has with the right size.
        tables: for a feed with a table for each value of a field, the number of rows that its commits have added to
            each table.
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
    tables: Mapping[str, int] = field(default_factory=dict)

    @property
    def headline(self) -> str:
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
        """The findings that disprove exactly-once."""
        return tuple(finding for finding in self.findings if finding.fault)

    @property
    def notes(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.fault)

    def as_dict(self) -> dict[str, Any]:
        partitions = [{**asdict(part), "lag": part.lag} for part in self.partitions]
        return {"verified": not self.faults, **asdict(self), "partitions": partitions}


def verify_feed(config: PipelineConfig, *, connections: Connections, deep: bool = False) -> Verification:
    """Compare a feed's commits, its dead letters and the broker's offsets with each other, even while the feed runs.

    Reads metadata and the positions of the dead letters, and counts records again on the broker if a range has fewer
    records than offsets. With ``deep``, also reads topic, partition and offset of all rows.

    Raises:
        ConfigError: the sink has no ledger, or with ``deep``, the table has no columns with its rows' offsets.
    """
    config.sink.require("verify")
    is_routed = config.sink.chosen.routed_by is not None
    evidence = collect_evidence(config, connections, deep=deep and not is_routed)
    if is_routed:
        evidence = load_route("verify", where=config.sink.chosen.target)(evidence, config, connections, deep=deep)
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
        tables=evidence.tables,
        partitions=tuple(_partition_results(evidence)),
        findings=tuple(findings(evidence)),
    )


def _partition_results(evidence: Evidence) -> Iterator[PartitionResult]:
    last = spans(evidence.commits[-1:])
    in_topics = partitions_of(evidence.same_topics)
    for key, (start, end) in sorted(spans(evidence.landed).items()):
        # After a rewind, use the feed's position, which is below the highest committed offset.
        _, end = last.get(key, (start, end))
        offsets = (in_topics[key].start_offset, in_topics[key].end_offset) if key in in_topics else (None, None)
        yield PartitionResult(*key, start, end, *offsets)
