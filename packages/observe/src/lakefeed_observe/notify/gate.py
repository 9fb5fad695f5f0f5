"""Decides when a kind of message is sent: after a time, once, not too often, and again when it is over."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from lakefeed_observe.notify.message import Occurrence, Status


@dataclass(frozen=True, kw_only=True)
class Sending:
    """A message to send for a kind of message."""

    status: Status
    finding: Occurrence
    since: float
    more: int = 0


@dataclass
class Gate:
    """One kind of message: what was sent of it, and what is held back. All times are seconds since 1970.

    Attributes:
        fires: a message was sent that is not resolved yet; it began ``since`` then.
        sent_at: when the last one was sent that was no resolution.
        held: how often it has happened since, without a message.
        newest: the newest of those that were held back.
        true_at: since when it lasts; ``clear_at`` since when it does not.
    """

    fires: bool = False
    since: float = 0.0
    sent_at: float | None = None
    held: int = 0
    newest: Occurrence | None = None
    newest_at: float = 0.0
    true_at: float | None = None
    clear_at: float | None = None

    def happened(self, finding: Occurrence, *, at: float) -> None:
        """Note that it has happened; ``due`` sends it."""
        self.held += 1
        self.newest, self.newest_at = finding, at

    def due(self, *, now: float, cool_down: float) -> Sending | None:
        """Return the newest of what has happened, if a message may be sent."""
        if self.newest is None or not self._has_cooled(now, cool_down):
            return None
        found = Sending(status="happened", finding=self.newest, since=self.newest_at, more=self.held - 1)
        self.newest, self.held, self.sent_at, self.fires, self.since = None, 0, now, True, found.since
        return found

    def lasts(self, finding: Occurrence | None, *, now: float, seconds: float, cool_down: float) -> Sending | None:
        """Note whether it lasts at this moment; return a message if it has begun or ended.

        Args:
            finding: None while it does not last.
            seconds: it has to last so long before it is sent, and to be over so long before it is resolved.
        """
        if finding is None:
            return self._is_clear(now=now, seconds=seconds)
        self.clear_at = None
        self.true_at = now if self.true_at is None else min(self.true_at, now)
        if self.fires or now - self.true_at < seconds or not self._has_cooled(now, cool_down):
            return None
        self.fires, self.since, self.sent_at = True, self.true_at, now
        more, self.held = self.held, 0
        return Sending(status="firing", finding=finding, since=self.since, more=more)

    def resolve(self, what: str) -> Sending | None:
        """Return the message that what has happened is over; None if no message was sent of it."""
        if not self.fires:
            return None
        self.fires, self.true_at, self.clear_at = False, None, None
        return Sending(status="resolved", finding=Occurrence(what=what), since=self.since)

    def _is_clear(self, *, now: float, seconds: float) -> Sending | None:
        if not self.fires:
            if self.true_at is not None and now - self.true_at >= seconds:
                self.held += 1  # The cool-down has held it back, and it is over before a message was sent.
            self.true_at = None
            return None
        self.clear_at = now if self.clear_at is None else min(self.clear_at, now)
        return self.resolve("it is over") if now - self.clear_at >= seconds else None

    def _has_cooled(self, now: float, cool_down: float) -> bool:
        # A clock that was set back must not hold a message back.
        return self.sent_at is None or not 0 <= now - self.sent_at < cool_down

    def as_dict(self) -> dict[str, Any]:
        """Return what the next run has to know: a feed that fails at each start is one message, not hundreds."""
        return {name: value for name, value in asdict(self).items() if name in KEPT}

    @classmethod
    def from_dict(cls, document: Any) -> Gate:
        """Read what an earlier run has kept; whatever is wrong in it is left out."""
        gate = cls()
        for field in fields(cls):
            value = document.get(field.name) if isinstance(document, dict) else None
            is_flag = field.name == "fires"
            if field.name in KEPT and isinstance(value, bool if is_flag else int | float):
                setattr(gate, field.name, value)
        return gate


KEPT = ("fires", "since", "sent_at", "held")
