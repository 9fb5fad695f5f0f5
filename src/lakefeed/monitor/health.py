"""Decides whether a feed lives, is ready, and commits: for probes, metrics and alerts alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.lag import rounded
from lakefeed.monitor.model import FeedProgress


@dataclass(frozen=True, kw_only=True)
class FeedHealth:
    """The health of a feed.

    Attributes:
        live: its driver's loop turns, and the run has not failed; to start the process again helps if not.
        ready: it is live, and open: neither starting nor ended.
        stalled: records wait, and no commit has come for too long; a long batch is no reason to kill the driver.
    """

    live: bool
    ready: bool
    stalled: bool
    progress: FeedProgress

    @property
    def is_well(self) -> bool:
        """Check that nothing is wrong."""
        return self.live and not self.stalled

    def as_dict(self) -> dict[str, Any]:
        """Return the health for JSON: docs/monitor-documents.md lists the keys."""
        progress = self.progress
        since = None if progress.last_commit_at is None else progress.taken_at - progress.last_commit_at
        return {
            "live": self.live,
            "ready": self.ready,
            "stalled": self.stalled,
            "state": progress.state,
            "hangs": progress.hangs,
            "lag": progress.lag,
            "lag_seconds": rounded(progress.lag_seconds),
            "seconds_since_commit": rounded(since),
            "seconds_since_progress": rounded(progress.taken_at - progress.progress_at),
        }


def health_of(progress: FeedProgress, *, no_commit_seconds: float | None = None) -> FeedHealth:
    """Return the health of a feed.

    Args:
        no_commit_seconds: a feed has stalled after so long without a commit while records wait; None for never.
    """
    live = not progress.hangs and progress.state != "failed"
    return FeedHealth(
        live=live,
        ready=live and progress.state not in ("starting", "ended"),
        stalled=no_commit_seconds is not None and seconds_stalled(progress) > no_commit_seconds,
        progress=progress,
    )


def health(monitor: FeedMonitor, *, no_commit_seconds: float | None = None) -> tuple[bool, dict[str, Any]]:
    """Return whether all is well with a feed, and what a probe is shown."""
    found = health_of(monitor.snapshot(), no_commit_seconds=no_commit_seconds)
    return found.is_well, found.as_dict()


def seconds_stalled(progress: FeedProgress) -> float:
    """Return for how long records have waited without a commit; 0 where none wait, or none should be written."""
    if progress.paused is not None or progress.state in ("ended", "failed"):
        return 0.0
    running = progress.running
    if not progress.lag and running is None:
        return 0.0
    since = progress.taken_at - (progress.last_commit_at or progress.started_at)
    # After a quiet night the last commit is long ago, and the record that has just come has not waited yet.
    waited = progress.lag_seconds if progress.lag else None if running is None else running.seconds(progress.taken_at)
    return since if waited is None else min(since, waited)
