"""Logs who has logged in, who was refused and who has acted, as events of the feed."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakefeed_dashboard.limits import Attempts

Note = Callable[..., None]
"""Takes the message, and details by name."""


class Audit:
    """The log of access; a flood of refused logins takes few of its lines."""

    def __init__(self, note: Note, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._refusals = Attempts(burst=30, every=20.0, clock=clock)
        self._unsaid = 0

    def accepted(self, user: str, *, address: str) -> None:
        """Log a login."""
        self._note(f"{user} has logged in from {address}", user=user, address=address, outcome="login")

    def left(self, user: str, *, address: str) -> None:
        """Log a logout."""
        self._note(f"{user} has logged out from {address}", user=user, address=address, outcome="logout")

    def refused(self, why: str, *, address: str, user: str | None = None) -> None:
        """Log a refused login; a name that no user has may be a mistyped password, and is left out."""
        if self._refusals.take("") > 0:
            self._unsaid += 1
            return
        more = f", after {self._unsaid:,} more" if self._unsaid else ""
        self._unsaid = 0
        who = f" for {user}" if user else ""
        self._note(f"refused {why}{who} from {address}{more}", user=user, address=address, outcome="refused")

    def denied(self, user: str, action: str, *, address: str) -> None:
        """Log an action that the user may not do."""
        if self._refusals.take("") > 0:
            self._unsaid += 1
            return
        self._note(
            f"{user} may not {action}: refused from {address}",
            user=user,
            address=address,
            action=action,
            outcome="refused",
        )
