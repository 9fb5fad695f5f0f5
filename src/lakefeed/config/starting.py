"""The place at which a new feed begins in its topics, as the pipeline file writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator

from lakefeed.config.base import ConfigProblem, ConfigProblems, checked, nearest
from lakefeed.config.values import is_topic_name, seconds_of
from lakefeed.offsets.ranges import Partition

Kind = Literal["earliest", "latest", "time", "last", "group", "offsets"]

GROUP, LAST = "group:", "last "
_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18})")
FORMS = "write earliest, latest, a time as 2026-11-20T06:30, 'last 24 hours', group:NAME or topic:partition:offset"


@dataclass(frozen=True)
class StartingOffsets:
    """The place at which a new feed begins: see ``parse``. Only the brokers know its offsets.

    Attributes:
        time: of ``time``, with its zone.
        seconds: of ``last``.
        group: of ``group``.
        offsets: of ``offsets``.
    """

    kind: Kind
    text: str
    time: datetime | None = None
    seconds: int = 0
    group: str = ""
    offsets: Mapping[Partition, int] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``earliest``, ``latest``, a time, ``last 24 hours``, ``group:NAME`` or ``topic:partition:offset,…``."""
        text = text.strip()
        if text == "earliest":
            return cls("earliest", text)
        if text == "latest":
            return cls("latest", text)
        if text.startswith(LAST):
            return cls("last", text, seconds=seconds_of(text.removeprefix(LAST)))
        if text.startswith(GROUP):
            if not (group := text.removeprefix(GROUP)):
                raise ValueError("group: is followed by the name of a consumer group")
            return cls("group", text, group=group)
        if ":" in text and not text[:4].isdigit():
            return cls("offsets", text, offsets=_parse_offsets(text))
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            near = nearest(text, ("earliest", "latest"))
            hint = f"did you mean '{near}'?" if near else None
            raise ConfigProblems(ConfigProblem(f"'{text}' is no place to begin: {FORMS}", hint=hint)) from None
        return cls("time", text, time=time if time.tzinfo else time.replace(tzinfo=UTC))

    @property
    def described(self) -> str:
        """Say in words where that is, for 'begins at …'."""
        match self.kind:
            case "time":
                return f"the records from {self.text}"
            case "last":
                return f"the records of the {self.text}"
            case "group":
                return f"the offsets of the consumer group {self.group}"
            case "offsets":
                return "the offsets that source.kafka.start names"
            case _:
                return f"the {self.text} records"

    @property
    def is_word(self) -> bool:
        """Check that it is ``earliest`` or ``latest``, which Spark knows too."""
        return self.kind in ("earliest", "latest")

    def begins_at(self, now: datetime) -> datetime | None:
        """Return the time of the first record to read; None where it is not said by a time."""
        return now - timedelta(seconds=self.seconds) if self.kind == "last" else self.time


def _parse_offsets(text: str) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for part in text.split(","):
        match = _OFFSET.fullmatch(part.strip())
        if match is None or not is_topic_name(match[1]):
            raise ValueError(f"'{part.strip()}' is no offset: write topic:partition:offset, several with commas")
        key = match[1], int(match[2])
        if key in found:
            raise ValueError(f"the partition {key[0]}-{key[1]} is there twice")
        found[key] = int(match[3])
    return found


def _as_text(value: Any) -> Any:
    # YAML reads a time without quotes as one.
    return value.isoformat() if isinstance(value, date) else value


def _require_known_before_topics(text: str) -> None:
    """Refuse a place that names topics or partitions: those of a topic to come are not known."""
    if (kind := StartingOffsets.parse(text).kind) in ("group", "offsets"):
        named = "a consumer group has" if kind == "group" else "these offsets have"
        what = f"{named} no place in topics that come later"
        raise ValueError(f"{what}: write earliest, latest, a time or 'last 24 hours'")


StartText = Annotated[str, BeforeValidator(_as_text), checked(StartingOffsets.parse)]
NewTopicsText = Annotated[StartText, checked(_require_known_before_topics)]
