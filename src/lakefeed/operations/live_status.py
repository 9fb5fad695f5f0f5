"""Decides whether a feed runs, from its ledger, its topics, and the answer of its driver.

The ledger alone cannot tell an idle feed from a stopped one, because neither commits. If the driver answers, its answer
decides. Otherwise the age of the newest commit and the lag decide; docs/design/watching.md has the reasons.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from lakefeed.clients.environment import default_home
from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import CheckpointMismatch, ConfigError, MissingExtra, ResourceMissing, Unreachable, WorldError
from lakefeed.feed.recovery import ends
from lakefeed.json_model import JsonModel, Seconds, Time, iso
from lakefeed.ledger.checkpoint import Owner
from lakefeed.ledger.outcomes import total
from lakefeed.ledger.pauses import Pause
from lakefeed.ledger.publication import BranchState, branch_state
from lakefeed.ledger.snapshot_summary import FEED as FEED_KEY
from lakefeed.ledger.snapshot_summary import FENCE, RANGES, Commit
from lakefeed.ledger.snapshots import ancestors, position_in
from lakefeed.messages.printable import counted
from lakefeed.messages.text import duration, one_line
from lakefeed.monitor import drivers
from lakefeed.monitor.drivers import DriverFile, ask
from lakefeed.monitor.model import Failure, FeedProgress
from lakefeed.operations.status import FeedOffsets, Lag, feed_offsets, lag_of
from lakefeed.records.sources import SourceTopics
from lakefeed.sinks.factory import sink_of

RunState = Literal[
    "running", "hangs", "replaced", "killed", "ended", "failed", "probably running", "probably stopped", "unknown"
]
IS_WELL: tuple[RunState, ...] = ("running", "probably running")

RECENT_SECONDS = 60.0
SILENT_SECONDS = 600.0
"""A feed that has lag, but no commit for this time, has probably stopped."""
NEWEST_COMMITS = 20
SKEW_SECONDS = 5.0
"""The clock that dates commits may be this many seconds ahead of or behind this machine's clock."""


@dataclass(frozen=True, kw_only=True)
class LedgerFacts:
    """Facts in a feed's ledger that help to decide whether the feed runs.

    Attributes:
        known: the feed's committed offsets; None if they are unknown, or without a commit.
        commits: the newest commits, newest first, without commits that moved the feed; empty if the sink stores no
            commits.
        fence: the fence of the driver that may commit.
        publication: the state of the branch that the feed lands in, if it lands in one.
    """

    known: FeedOffsets | None = None
    commits: Sequence[Commit] = ()
    fence: str | None = None
    publication: BranchState | None = None

    @property
    def last_commit_at(self) -> float | None:
        if self.commits:
            return self.commits[0].committed_at
        return self.known.committed_at if self.known is not None else None

    @property
    def last_batch(self) -> int | None:
        if self.commits:
            return self.commits[0].batch_id
        return self.known.batch_id if self.known is not None else None

    @property
    def rate(self) -> float | None:
        """Records per second from the oldest to the newest of these commits, if the newest driver made them."""
        own = self._of_newest_driver
        if len(own) < 2 or own[0].committed_at <= own[-1].committed_at:
            return None
        records = sum(total(commit.counts).records or commit.ranges.records for commit in own[:-1])
        return records / (own[0].committed_at - own[-1].committed_at)

    @property
    def upserts(self) -> str | None:
        """How the newest commits landed changes: by the index of keys or by a MERGE. None for a table without keys."""
        merges = [commit.merged_because for commit in self.commits if commit.upserts is not None]
        if not merges:
            return None
        if not (reasons := [reason for reason in merges if reason is not None]):
            return "by the index of keys"
        return f"{len(reasons)} of the newest {counted(len(merges), 'commit')} by a MERGE: {reasons[0]}"

    @property
    def interval(self) -> float | None:
        """The longest time between two consecutive commits of the newest driver."""
        pairs = pairwise(self._of_newest_driver)
        return max((newer.committed_at - older.committed_at for newer, older in pairs), default=None)

    @property
    def _of_newest_driver(self) -> list[Commit]:
        return [commit for commit in self.commits if commit.fence == self.commits[0].fence]


def _shown_driver(driver: DriverFile) -> dict[str, Any]:
    return {"host": driver.host, "pid": driver.pid, "since": iso(driver.since)}


class LiveStatus(JsonModel):
    """The status of a feed: docs/metrics.md lists the keys of its document.

    Attributes:
        evidence: sentences that say why the feed is thought to be in this state.
        driver: the driver's file on this machine.
        rate: records per second, over the newest commits in the ledger, or else over the driver's last minute.
        last_error: the driver's last error, or the error that ended the run.
        progress: the driver's answer; None if there is no answer.
        paused: the pause that the next start finds, if the driver does not answer.
        publication: the state of the branch that the feed lands in, if it lands in one.
        last_rows: the number of rows of the newest commit.
        upserts: how the changes of the newest commits were landed; None for a table without keys.
    """

    feed: str
    sink: str
    state: RunState
    evidence: tuple[str, ...]
    taken_at: Time
    driver: Annotated[DriverFile, PlainSerializer(_shown_driver)] | None = None
    fence: str | None = None
    last_commit_at: Time | None = None
    last_batch: int | None = None
    rate: Seconds | None = None
    last_error: Failure | None = None
    lag: Lag | None = None
    progress: FeedProgress | None = None
    paused: Pause | None = None
    publication: BranchState | None = Field(None, exclude_if=lambda state: state is None)
    is_rate_of_ledger: bool = Field(False, exclude=True)
    last_rows: int | None = Field(None, exclude=True)
    upserts: str | None = Field(None, exclude_if=lambda upserts: upserts is None)

    @property
    def is_well(self) -> bool:
        return self.state in IS_WELL


def live_status(
    config: PipelineConfig,
    *,
    connections: Connections,
    folder: Path | None = None,
    identity: str | None = None,
) -> LiveStatus:
    """Return whether a feed runs, its position, and its lag, without changing anything.

    Args:
        config: the pipeline of one table.
        folder: the folder of the pipeline file.
        identity: the identity of the whole pipeline, if ``config`` is only one topic's.

    Raises:
        Unreachable: the driver does not answer, and a broker, the catalog or the store does not answer either.
    """
    driver = drivers.find(identity or identity_of(config))
    progress, unanswered = _ask(driver)
    # If the driver answers, show its answer even if other servers do not answer.
    tolerated = (WorldError, MissingExtra) if progress is not None else ()
    lag = None
    try:
        ledger, unknown = _ledger(config, connections, folder)
    except tolerated as error:
        ledger, unknown = LedgerFacts(), (f"the ledger is unknown: {error.what}",)
    else:
        try:
            lag = _lag(config, ledger)
        except tolerated as error:
            unknown = (*unknown, f"the lag is unknown: {error.what}")
    now = time.time()
    topics = config.source.kafka.topics if config.source.kafka else None
    state, evidence = judge(
        ledger,
        driver=driver,
        progress=progress,
        unanswered=unanswered,
        lag=lag.records if lag else None,
        now=now,
        is_here=driver is not None and driver.is_here,
        # If the driver has many tables, the state is that of this topic's table.
        topic=topics[0] if topics is not None and len(topics) == 1 else None,
    )
    ended_by = driver.error if driver is not None and state == "failed" else None
    return LiveStatus(
        feed=config.name,
        sink=Owner.of(config).sink,
        state=state,
        evidence=(*evidence, *unknown),
        taken_at=now,
        driver=driver,
        fence=ledger.fence,
        last_commit_at=ledger.last_commit_at,
        last_batch=ledger.last_batch,
        rate=progress.rate if progress is not None and ledger.rate is None else ledger.rate,
        last_error=progress.last_error if progress is not None else ended_by,
        lag=lag,
        progress=progress,
        publication=ledger.publication,
        is_rate_of_ledger=ledger.rate is not None,
        last_rows=ledger.commits[0].rows if ledger.commits else None,
        upserts=ledger.upserts,
    )


def _lag(config: PipelineConfig, ledger: LedgerFacts) -> Lag | None:
    if config.source.kafka is None:
        return None
    source, known = config.kafka, ledger.known or FeedOffsets(offsets={})
    # The caller has read first the position, then the topics' ends: otherwise a running feed could be ahead of them.
    topics = SourceTopics(source).describe()
    partitions = lag_of(known.offsets, topics, start=source.starting, source=source, topic_ids=known.topic_ids)
    return Lag(name=config.name, kind="feed", partitions=partitions, is_known=ledger.known is not None)


def identity_of(config: PipelineConfig) -> str:
    """Return a text that identifies a feed on this machine, made of its name, brokers, sink and checkpoint."""
    brokers = config.source.kafka.bootstrap_servers if config.source.kafka else ""
    return "\n".join((config.name, brokers, Owner.of(config).sink, config.checkpoint or ""))


def own_path(kind: str, config: PipelineConfig) -> Path | None:
    """Return the path of this user's file for a feed in ``run/<kind>``; None if the user has no home directory."""
    try:
        return drivers.path_of(identity_of(config), folder=default_home() / "run" / kind)
    except RuntimeError:
        return None


def judge(
    ledger: LedgerFacts,
    *,
    driver: DriverFile | None,
    progress: FeedProgress | None,
    unanswered: str | None,
    lag: int | None,
    now: float,
    is_here: bool = True,
    topic: str | None = None,
) -> tuple[RunState, tuple[str, ...]]:
    """Decide whether a feed runs; return the state and the reasons.

    Args:
        driver: the file that the feed's driver has written on this machine.
        progress: the driver's answer.
        unanswered: why the driver does not answer, although it has an endpoint; else None.
        lag: the number of uncommitted offsets; None if it is unknown.
        is_here: whether this machine can see the driver's process.
        topic: if the driver has many tables, the topic whose table the question is about.
    """
    if progress is not None and driver is not None:
        return _by_answer(ledger, driver, progress, topic=topic)
    if driver is not None and is_here:
        who = f"its driver, process {driver.pid} on this machine,"
        if driver.is_running and driver.url is None:
            return "probably running", (f"{who} runs without an endpoint",)
        if driver.is_running:
            return "hangs", (f"{who} runs, and {unanswered or 'does not answer'}",)
        state: RunState = driver.ended or "killed"
        gone = f"{who} {_GONE[state]}"
        if _is_taken_over(ledger, driver):
            return _by_commits(ledger, lag=lag, now=now, driver=f"{gone}, and another driver has committed since")
        return state, (gone,)
    return _by_commits(ledger, lag=lag, now=now)


_GONE = {
    "ended": "has ended its run",
    "failed": "has ended its run with an error",
    "killed": "was killed or has crashed",
}


def _is_taken_over(ledger: LedgerFacts, driver: DriverFile) -> bool:
    """Return whether another driver than ``driver`` made the newest commits."""
    if driver.ended_at is not None:
        # A new fence does not prove a new driver: a rewind takes a fence, too. A run with --batch takes no fence.
        is_own = driver.fence is not None and driver.fence == ledger.fence
        return not is_own and (ledger.last_commit_at or 0.0) > driver.ended_at + SKEW_SECONDS
    newest = ledger.last_commit_at
    if not driver.has_begun:
        return newest is not None and newest > driver.since
    if driver.fence is not None:
        return ledger.fence is not None and driver.fence != ledger.fence
    if newest is None or driver.alive_at is None:
        return False
    # A feed with many tables has no fence, and some sinks have none. Then a commit after the death of the driver's
    # process comes from another driver.
    return newest > driver.alive_at + drivers.TOUCH_SECONDS + SKEW_SECONDS


def _by_answer(
    ledger: LedgerFacts, driver: DriverFile, progress: FeedProgress, *, topic: str | None
) -> tuple[RunState, tuple[str, ...]]:
    who = f"process {driver.pid} on {driver.host} answers"
    if progress.fence is not None and ledger.fence is not None and progress.fence != ledger.fence:
        taken = f"another driver has taken the feed over: the fence is {one_line(ledger.fence)}"
        return "replaced", (f"{who}, and {taken}",)
    if progress.hangs:
        return "hangs", (f"{who}, and its loop has not turned since {iso(progress.alive_at)}",)
    if topic is not None and (why := progress.failed_tables.get(topic)) is not None:
        return "failed", (f"{who}, and the table of the topic {topic} has failed: {one_line(why)}",)
    if progress.state == "failed":
        return "failed", (f"{who}: the run has failed",)
    if progress.waits_for is not None:
        who = f"{who}; waiting for a server: {one_line(progress.waits_for)}"
    return ("ended", (f"{who}: the run has ended",)) if progress.state == "ended" else ("running", (who,))


def _by_commits(
    ledger: LedgerFacts, *, lag: int | None, now: float, driver: str = "this machine has no driver of the feed"
) -> tuple[RunState, tuple[str, ...]]:
    """Return state and reasons by the age of the newest commit; ``driver`` is a sentence about the driver."""
    if ledger.last_commit_at is None:
        return "unknown", (driver, "its sink has no commit")
    age = now - ledger.last_commit_at
    if age < -RECENT_SECONDS:
        ahead = f"its newest commit is dated {duration(-age)} from now: the clocks of the machines differ"
        return "unknown", (driver, ahead)
    commit = f"its newest commit came {duration(max(0.0, age))} ago"
    interval = ledger.interval or 0.0
    if age <= max(RECENT_SECONDS, min(SILENT_SECONDS, 2 * interval)):
        return "probably running", (driver, commit)
    if lag and age > max(SILENT_SECONDS, 3 * interval):
        return "probably stopped", (driver, f"{commit}, and the lag is {lag:,} offsets")
    if lag == 0:
        return "unknown", (driver, f"{commit}, and it has no lag: idle or stopped")
    return "unknown", (driver, commit)


def _ask(driver: DriverFile | None) -> tuple[FeedProgress | None, str | None]:
    """Ask the driver's endpoint; return the answer, or the reason why there is no answer."""
    if driver is None or driver.url is None or driver.token is None:
        return None, None
    if not driver.is_here or not driver.is_running:
        return None, None
    try:
        return ask(driver.url, driver.token), None
    except Unreachable as error:
        return None, error.what


def _ledger(
    config: PipelineConfig, connections: Connections, folder: Path | None
) -> tuple[LedgerFacts, tuple[str, ...]]:
    """Return the ledger's facts, and the reasons why the feed's position is unknown; no reasons if it is known."""
    try:
        if (table := config.sink.chosen.snapshot_table) is not None:
            return _iceberg_facts(table, config.name, connections), ()
        known = feed_offsets(config, connections=connections, folder=folder)
        try:
            with sink_of(config, connections, folder=folder).history() as history:
                commits = tuple(_batches(reversed(history.commits)))
                return LedgerFacts(known=known, commits=commits, fence=history.fence), ()
        except (ConfigError, ResourceMissing):
            return LedgerFacts(known=known), ()
    except CheckpointMismatch as unknown:
        return LedgerFacts(), (unknown.what,)


def _iceberg_facts(name: str, feed: str, connections: Connections) -> LedgerFacts:
    try:
        table = open_table(name, connections=connections)
    except ResourceMissing:
        return LedgerFacts()

    def commits() -> Iterator[Commit]:
        for snapshot in reversed(ancestors(table, feed)[0]):
            summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if summary.get(FEED_KEY) == feed and RANGES in summary:
                yield Commit.of(snapshot.snapshot_id, summary, committed_at=snapshot.timestamp_ms / 1000)

    position = position_in(table, feed, where=name)
    known = None if position is None else FeedOffsets(offsets=ends(position), topic_ids=position.ranges.topic_ids)
    return LedgerFacts(
        known=known,
        commits=tuple(_batches(commits())),
        fence=table.properties.get(f"{FENCE}.{feed}"),
        publication=branch_state(table, feed),
    )


def _batches(commits: Iterator[Commit]) -> Iterator[Commit]:
    return islice((commit for commit in commits if commit.move is None), NEWEST_COMMITS)
