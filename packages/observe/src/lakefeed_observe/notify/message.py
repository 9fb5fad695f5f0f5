"""A message about a feed as a value; each target writes it in its own format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lakefeed.monitor.model import Driver, iso
from lakefeed.monitor.text import one_line

Status = Literal["happened", "firing", "resolved", "test"]
Severity = Literal["info", "warning", "critical"]

LONGEST = 500
LONGEST_SUBJECT = 150
VERSION = 1

_SEVERITIES: dict[str, Severity] = {
    "stopped": "info",
    "schema": "info",
    "test": "info",
    "failed": "critical",
    "error": "critical",
    "error_budget": "critical",
    "no_commit": "critical",
    "hangs": "critical",
}
_TITLES = {
    "stopped": "stopped",
    "failed": "failed",
    "error": "error",
    "error_budget": "error budget exceeded",
    "request_budget": "budget of S3 requests exceeded",
    "audit": "the table is not published",
    "lag": "lag",
    "no_data": "no data",
    "no_commit": "no commit",
    "schema": "another schema",
    "dead_letters": "dead letters",
    "paused": "paused",
    "hangs": "the driver hangs",
    "test": "test",
}


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """Something about a feed that is worth a message."""

    what: str
    where: str | None = None
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message.

    Attributes:
        key: distinguishes messages of one trigger, such as a sink's name; empty for most.
        status: it ``happened`` at one moment; or it lasts (``firing``), and is ``resolved`` later.
        since: when it began; ``at`` is when this was noticed. Seconds since 1970.
        more: how often it has happened besides, since the message before.
        left_out: messages to the same target that were never sent, since the one before.
        repeated: it has been sent before, and is repeated for a receiver that forgets what is not.
    """

    trigger: str
    status: Status
    feed: str
    finding: Occurrence
    since: float
    at: float
    driver: Driver
    key: str = ""
    more: int = 0
    left_out: int = 0
    link: str | None = None
    repeated: bool = False

    @property
    def severity(self) -> Severity:
        return _SEVERITIES.get(self.trigger, "warning")

    @property
    def title(self) -> str:
        """The feed and the trigger in a few words."""
        words = _TITLES.get(self.trigger, self.trigger)
        return f"{self.feed}: {words}{', resolved' if self.status == 'resolved' else ''}"

    @property
    def subject(self) -> str:
        """One line that says all that matters."""
        return one_line(f"{self.title}: {self.finding.what}", most=LONGEST_SUBJECT)

    @property
    def lines(self) -> list[str]:
        """The rest of it as lines: each is bounded, and has no control characters and no secrets."""
        found = [self.finding.what]
        if self.finding.where:
            found.append(f"where: {self.finding.where}")
        if self.finding.hint and self.status != "resolved":
            found.append(f"next: {self.finding.hint}")
        if self.more:
            found.append(f"and {self.more:,} more of this kind since the message before")
        if self.left_out:
            found.append(f"{self.left_out:,} earlier messages were not sent")
        found.append(f"since {iso(self.since)}; driver: process {self.driver.pid} on {self.driver.host}")
        return [one_line(line, most=LONGEST) for line in found]

    def as_dict(self) -> dict[str, Any]:
        """Return the message for programs: docs/alerts.md lists the keys."""

        def text(value: str | None) -> str | None:
            return None if value is None else one_line(value, most=LONGEST)

        return {
            "version": VERSION,
            "feed": self.feed,
            "trigger": self.trigger,
            "status": self.status,
            "severity": self.severity,
            "summary": self.subject,
            "what": text(self.finding.what),
            "where": text(self.finding.where),
            "hint": text(self.finding.hint),
            "since": iso(self.since),
            "at": iso(self.at),
            "more": self.more,
            "left_out": self.left_out,
            "link": self.link,
            "driver": self.driver.as_dict(),
        }


def sample_message(feed: str, *, driver: Driver, at: float, link: str | None = None) -> Message:
    """Return a message that says that it is a test."""
    finding = Occurrence(what="this is a test of lakefeed's notifications: nothing has happened")
    return Message(trigger="test", status="test", feed=feed, finding=finding, since=at, at=at, driver=driver, link=link)
