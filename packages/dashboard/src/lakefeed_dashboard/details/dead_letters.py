"""The newest dead letters of a feed, grouped by reason, with samples of their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ResourceMissing
from lakefeed.json_model import iso
from lakefeed.messages.redaction import redacted
from lakefeed.sinks.dead_letters.store import Content, DeadLetterReader
from lakefeed_dashboard.workers import explained

MOST_LETTERS = 1_000
"""The number of newest dead letters that the page counts and samples; in a topic, the number per partition."""
MOST_TABLES = 20
MOST_REASONS = 20
SAMPLES = 3
LONGEST = 2_000
LONGEST_CONTENT = 10_000
"""The page shows at most this many bytes of a key or value; ``lakefeed dead-letters show`` prints all bytes."""

Readers = Iterable[tuple[str, DeadLetterReader]]


def dead_letters_document(config: PipelineConfig, readers: Callable[[], Readers], *, now: float) -> dict[str, Any]:
    """Return the newest dead letters as a document.

    Args: readers: yields a name and a reader of dead letters for each table of the feed with its own dead letters.
    """
    document = no_dead_letters(config, now=now)
    if config.dead_letters is None:
        return document
    document["kept"] = "table" if config.dead_letters.table is not None else "topic"
    counts, samples = Counter[str](), dict[str, list[dict[str, Any]]]()
    errors: list[str] = []
    for number, (feed, reader) in enumerate(readers()):
        if number == MOST_TABLES:
            document["complete"] = False
            break
        try:
            recent = reader.recent(feed, most=MOST_LETTERS, samples=SAMPLES, longest=LONGEST_CONTENT)
        except ResourceMissing:
            continue  # The first dead letter creates the table or topic.
        except Exception as error:
            errors.append(explained(error))
            continue
        document["complete"] &= recent.is_whole
        for reason, count, letters in recent.reasons:
            counts[reason] += count
            samples.setdefault(reason, []).extend(_sample(letter) for letter in letters)
    document["reasons"] = [
        {"reason": redacted(reason)[:LONGEST], "count": count, "samples": samples[reason][:SAMPLES]}
        for reason, count in counts.most_common(MOST_REASONS)
    ]
    document["complete"] &= len(counts) <= MOST_REASONS
    document["error"] = "; ".join(errors) or None
    return document


def no_dead_letters(config: PipelineConfig, *, now: float) -> dict[str, Any]:
    """Return the panel's document for a feed that has no dead letters."""
    return {
        "reasons": [],
        "complete": True,
        "taken_at": iso(now),
        # A replay needs a sink that supports replays, and a feed without further sinks.
        "replayable": config.dead_letters is not None and not config.sinks and config.sink.refusal("replay") is None,
        "kept": None,
        "error": None,
    }


def _sample(letter: dict[str, Any]) -> dict[str, Any]:
    key, value = letter["content"]
    return {
        "topic": letter["topic"],
        "partition": letter["partition"],
        "offset": letter["offset"],
        "reason": redacted(letter["reason"])[:LONGEST],
        **shown("key", key),
        **shown("value", value),
        "at": _time(letter["timestamp"]),
        "failed_at": _time(letter["failed_at"]),
    }


def shown(name: str, content: Content) -> dict[str, Any]:
    """Return a key or value as text if it is UTF-8, otherwise as hexadecimal digits; truncate long content.

    The page must escape the text, which may contain control characters and marks of text direction.
    """
    if content.data is None:
        return {name: None, f"{name}_encoding": None, f"{name}_bytes": None, f"{name}_cut": False}
    is_cut = content.size > len(content.data)
    try:
        text = content.data.decode("utf-8") if not is_cut else _decoded(content.data)
        encoding = "text"
    except UnicodeDecodeError:
        first = content.data[: LONGEST_CONTENT // 2]
        text, encoding, is_cut = first.hex(), "hex", content.size > len(first)
    return {
        name: redacted(text),
        f"{name}_encoding": encoding,
        f"{name}_bytes": content.size,
        f"{name}_cut": is_cut,
    }


def _decoded(data: bytes) -> str:
    """Decode UTF-8 whose last character may be cut off."""
    for end in range(len(data), max(0, len(data) - 4), -1):
        try:
            return data[:end].decode("utf-8")
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                raise
    return data.decode("utf-8")


def _time(at: datetime | str | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if isinstance(at, datetime) else at
