"""The bodies of messages: Slack's, Alertmanager's, JSON, and mail.

Texts in a message may come from records, schemas and servers. Each format escapes them its own way:

- Slack: https://docs.slack.dev/messaging/formatting-message-text#escaping
- Alertmanager: ``postableAlert`` of its API v2, and the body of its own webhook receivers,
  https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid, parseaddr
from typing import Any

from lakefeed.monitor.model import iso
from lakefeed.monitor.text import json_line
from lakefeed_observe.notify.message import Message
from lakefeed_observe.notify.settings import Mail, WebhookFormat

ALERTS_PATH = "/api/v2/alerts"
REPEAT_SECONDS = 60.0
"""Alertmanager forgets an alert that is not repeated; it recommends 30 seconds to 3 minutes."""
LASTS_SECONDS = 5 * REPEAT_SECONDS
HAPPENED_SECONDS = 3600.0
"""So long Alertmanager shows what has happened at one moment."""

_GROUPS = re.compile(r"@(channel|here|everyone|all|group)\b", re.IGNORECASE)
_WORD_JOINER = "\u2060"


def body_of(message: Message, kind: WebhookFormat) -> bytes:
    """Return the JSON that a webhook of this format takes."""
    if kind == "slack":
        document: Any = slack(message)
    elif kind == "alertmanager":
        document = [alert(message)]
    elif kind == "alertmanager_webhook":
        document = alertmanager_webhook(message)
    else:
        return json_line(message.as_dict()).encode()
    # Plain ASCII: what does not print is an escape.
    return json.dumps(document).encode()


def slack(message: Message) -> dict[str, Any]:
    """Return the message for an incoming webhook of Slack."""
    text = "\n".join([f"*{escape_slack(message.title)}*", *map(escape_slack, message.lines)])
    if message.link:
        text += f"\n<{escape_slack(message.link).replace('|', '%7C')}|dashboard>"
    return {"text": text, "unfurl_links": False, "unfurl_media": False}


def escape_slack(text: str) -> str:
    """Escape a text for Slack: no mention, no link and no channel's name is read in it."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Servers with the same webhooks, as Mattermost, mention everybody by the plain word.
    return _GROUPS.sub(lambda found: f"@{_WORD_JOINER}{found[1]}", escaped)


def alert(message: Message) -> dict[str, Any]:
    """Return the message as an alert of Alertmanager's API v2."""
    if message.status == "resolved":
        ends = message.at
    else:
        ends = message.at + (LASTS_SECONDS if message.status == "firing" else HAPPENED_SECONDS)
    found = {
        "labels": _labels(message),
        "annotations": _annotations(message),
        "startsAt": iso(min(message.since, ends)),
        "endsAt": iso(ends),
    }
    return {**found, "generatorURL": message.link} if message.link else found


def alertmanager_webhook(message: Message) -> dict[str, Any]:
    """Return the message as Alertmanager sends a group of one alert to its webhook receivers."""
    labels, annotations = _labels(message), _annotations(message)
    is_over = message.status == "resolved"
    fingerprint = f"{hash_of(labels):016x}"
    return {
        "version": "4",
        "groupKey": f"lakefeed:{fingerprint}",
        "truncatedAlerts": 0,
        "status": "resolved" if is_over else "firing",
        "receiver": "lakefeed",
        "groupLabels": labels,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": message.link or "",
        "alerts": [
            {
                "status": "resolved" if is_over else "firing",
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
    """Hash labels as 64 bits (FNV-1a), the same for the same labels in each process."""
    value = 0xCBF29CE484222325
    for byte in json.dumps(labels, sort_keys=True).encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def _labels(message: Message) -> dict[str, str]:
    """Return what makes an alert this one: the same while it fires, when it is repeated, and when it is resolved."""
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
    """Return the message as a mail: headers are encoded, and no text of it can add one."""
    mail = EmailMessage()
    name, address = parseaddr(settings.from_)
    mail["From"] = Address(display_name=name, addr_spec=address)
    mail["To"] = [Address(display_name=name, addr_spec=address) for name, address in map(parseaddr, settings.to)]
    mail["Subject"] = f"[lakefeed] {message.subject}"
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.at, UTC))
    # A domain of its own: the default asks DNS for this machine's name.
    mail["Message-ID"] = make_msgid(domain="lakefeed.invalid")
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Lakefeed-Trigger"] = message.trigger
    text = [message.title, "", *message.lines, *([f"dashboard: {message.link}"] if message.link else [])]
    mail.set_content("\n".join(text) + "\n", charset="utf-8")
    return mail
