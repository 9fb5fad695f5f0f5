"""Keeps the error budget of a feed: how many dead letters its recent batches had, and how many a batch may have."""

from __future__ import annotations

import time
from collections import deque

from lakefeed.config.durations import seconds_of
from lakefeed.config.failures import ErrorBudget
from lakefeed.ledger.outcomes import ZERO, BatchOutcomes, Counts


class SpentBudget:
    """An error budget, and what the batches of its window have spent of it.

    Args:
        budget: the feed's; None if any number of dead letters is allowed.

    Attributes:
        seconds: how far the window looks back; 0 without one.
    """

    def __init__(self, budget: ErrorBudget | None) -> None:
        self._budget = budget
        self._window = budget.window if budget else None
        self.seconds = seconds_of(self._window.duration) if self._window else 0
        self._spent: deque[tuple[float, Counts]] = deque()

    def limit(self, outcomes: BatchOutcomes) -> None:
        """Bound the dead letters of a batch by what is left."""
        if self._budget is None:
            return
        outcomes.bound(max_rows=self._budget.max_rows, max_share=self._budget.max_share)
        if self._window is not None:
            while self._spent and self._spent[0][0] < time.time() - self.seconds:
                self._spent.popleft()
            before = sum((counts for _, counts in self._spent), ZERO)
            outcomes.bound(max_rows=self._window.max_rows, max_share=self._window.max_share, before=before)

    def spend(self, counts: Counts, *, at: float | None = None, oldest: bool = False) -> None:
        """Record a committed batch.

        Args:
            counts: the outcomes of its records.
            at: when it was committed. Default: now.
            oldest: it comes before all batches recorded until now.
        """
        if self._window is not None:
            spent = (time.time() if at is None else at, counts)
            (self._spent.appendleft if oldest else self._spent.append)(spent)
