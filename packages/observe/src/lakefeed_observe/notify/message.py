"""A message about a feed, and its text in the formats of the targets."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid, parseaddr
from typing import Any, Literal

from lakefeed.json_model import iso
from lakefeed.messages.text import json_line, one_line
from lakefeed.monitor.model import Driver
from lakefeed_observe.notify.settings import Mail, WebhookFormat

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
    """The text of a message: what has happened, where, and what to do next."""

    what: str
    where: str | None = None
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message about one event of a feed, or about a state that begins or ends, such as lag.

    Attributes:
        key: distinguishes messages of one trigger, for example by sink; usually empty.
        status: ``happened`` for an event; ``firing`` when a state begins, and ``resolved`` when it ends.
        since: when the event or state began; ``at`` is when the driver noticed it. Seconds since 1970.
        more: how many further events there were since the previous message.
        left_out: the number of messages that the driver has dropped since the previous message to the same target.
        repeated: this message was sent before; Alertmanager forgets an alert that is not repeated.
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
        """The title and the event in one line."""
        return one_line(f"{self.title}: {self.finding.what}", most=LONGEST_SUBJECT)

    @property
    def lines(self) -> list[str]:
        """The lines below the title, of limited length, without control characters and secrets."""
        found = [self.finding.what]
        if self.finding.where:
            found.append(f"where: {self.finding.where}")
        if self.finding.hint and self.status != "resolved":
            found.append(f"next: {self.finding.hint}")
        if self.more:
            found.append(f"and {self.more:,} more of this kind since the previous message")
        if self.left_out:
            found.append(f"{self.left_out:,} earlier messages were not sent")
        found.append(f"since {iso(self.since)}; driver: process {self.driver.pid} on {self.driver.host}")
        return [one_line(line, most=LONGEST) for line in found]

    def as_dict(self) -> dict[str, Any]:
        """Return the message for programs; docs/alerts.md lists the keys."""

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
    finding = Occurrence(what="this is a test of lakefeed's notifications: nothing has happened")
    return Message(trigger="test", status="test", feed=feed, finding=finding, since=at, at=at, driver=driver, link=link)


ALERTS_PATH = "/api/v2/alerts"
REPEAT_SECONDS = 60.0
"""Alertmanager forgets an alert that is not repeated; it recommends an interval of 30 seconds to 3 minutes."""
LASTS_SECONDS = 5 * REPEAT_SECONDS
HAPPENED_SECONDS = 3600.0
"""Alertmanager shows an event for this many seconds, because an event has no end."""

_GROUPS = re.compile(r"@(channel|here|everyone|all|group)\b", re.IGNORECASE)
_WORD_JOINER = "\u2060"


def body_of(message: Message, kind: WebhookFormat) -> bytes:
    """Return the JSON that a webhook of this format expects."""
    if kind == "slack":
        document: Any = slack(message)
    elif kind == "alertmanager":
        document = [alert(message)]
    elif kind == "alertmanager_webhook":
        document = alertmanager_webhook(message)
    else:
        return json_line(message.as_dict()).encode()
    # json.dumps writes ASCII, so characters that do not print are escaped.
    return json.dumps(document).encode()


def slack(message: Message) -> dict[str, Any]:
    """Return the message for a Slack incoming webhook."""
    text = "\n".join([f"*{escape_slack(message.title)}*", *map(escape_slack, message.lines)])
    if message.link:
        text += f"\n<{escape_slack(message.link).replace('|', '%7C')}|dashboard>"
    return {"text": text, "unfurl_links": False, "unfurl_media": False}


def escape_slack(text: str) -> str:
    """Escape a text for Slack, so that Slack reads no mention, link or channel name in it."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Mattermost, which takes the same format, reads a plain @channel as a mention of all users.
    return _GROUPS.sub(lambda found: f"@{_WORD_JOINER}{found[1]}", escaped)


def alert(message: Message) -> dict[str, Any]:
    """Return the message as an alert of Alertmanager's API v2."""
    ends = message.at + {"resolved": 0.0, "firing": LASTS_SECONDS}.get(message.status, HAPPENED_SECONDS)
    found = {
        "labels": _labels(message),
        "annotations": _annotations(message),
        "startsAt": iso(min(message.since, ends)),
        "endsAt": iso(ends),
    }
    return {**found, "generatorURL": message.link} if message.link else found


def alertmanager_webhook(message: Message) -> dict[str, Any]:
    """Return the message in the form of Alertmanager's webhooks, as a group of one alert."""
    labels, annotations = _labels(message), _annotations(message)
    is_over = message.status == "resolved"
    status = "resolved" if is_over else "firing"
    fingerprint = f"{hash_of(labels):016x}"
    return {
        "version": "4",
        "groupKey": f"lakefeed:{fingerprint}",
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "lakefeed",
        "groupLabels": labels,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": message.link or "",
        "alerts": [
            {
                "status": status,
                "labels": labels,
                "annotations": annotations,
                "startsAt": iso(message.since),
                "endsAt": iso(message.at) if is_over else "0001-01-01T00:00:00Z",
                "generatorURL": message.link or "",
                "fingerprint": fingerprint,
            }
        ],
    }


def hash_of(labels: dict[str, str]) -> int:
    """Return a 64-bit hash of labels (FNV-1a); equal labels give equal hashes in all processes."""
    value = 0xCBF29CE484222325
    for byte in json.dumps(labels, sort_keys=True).encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def _labels(message: Message) -> dict[str, str]:
    """Return the labels that identify an alert; a resolution has the same labels as its alert."""
    name = "".join(word.capitalize() for word in message.trigger.split("_"))
    found = {
        "alertname": f"Lakefeed{name}",
        "feed": message.feed,
        "trigger": message.trigger,
        "severity": message.severity,
    }
    return {**found, "sink": message.key} if message.key else found


def _annotations(message: Message) -> dict[str, str]:
    found = {"summary": message.subject, "description": "\n".join(message.lines)}
    return {**found, "dashboard": message.link} if message.link else found


def mail_of(message: Message, settings: Mail) -> EmailMessage:
    """Return the message as a mail; headers are encoded, so no text can add a header."""
    mail = EmailMessage()
    name, address = parseaddr(settings.from_)
    mail["From"] = Address(display_name=name, addr_spec=address)
    mail["To"] = [Address(display_name=name, addr_spec=address) for name, address in map(parseaddr, settings.to)]
    mail["Subject"] = f"[lakefeed] {message.subject}"
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.at, UTC))
    # Without a domain, make_msgid asks DNS for this machine's name.
    mail["Message-ID"] = make_msgid(domain="lakefeed.invalid")
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Lakefeed-Trigger"] = message.trigger
    text = [message.title, "", *message.lines, *([f"dashboard: {message.link}"] if message.link else [])]
    mail.set_content("\n".join(text) + "\n", charset="utf-8")
    return mail
