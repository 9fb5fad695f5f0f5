"""Turns Spark's failure of a job into errors that say which record or which registry it was."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakefeed.errors import AccessDenied, DecodeError, LakefeedError, Unreachable, WorldError

POSITION = "lakefeed cannot decode the record at topic %s, partition %d, offset %d"
"""Said by ``raise_error``; a format string of Spark's ``format_string``."""

UNKNOWN_SCHEMA = "unknown schema id "
"""How the reason of a record begins whose schema id the registry does not know (``Registry.java``)."""

BAD_TIMESTAMP_REASON = "timestamp %d ms is out of range: nanoseconds sent as milliseconds?"
"""How the reason of a record reads whose timestamp Spark cannot hold."""

BAD_TIMESTAMP_PATTERN = r"^timestamp (-?\d+) ms is out of range"
"""Finds the timestamp in that reason."""

_DECODE = re.compile(
    r"lakefeed cannot decode the record at (topic [\w.-]+, partition \d+, offset \d+): (.*?)(?: SQLSTATE: \w{5})?$",
    re.MULTILINE,
)
_REGISTRY = re.compile(r"lakefeed schema registry ([\w ]+): (.*?)(?: SQLSTATE: \w{5})?$", re.MULTILINE)


def decode_error_of(exception: BaseException) -> DecodeError | None:
    """The record that stopped the job; None if it stopped for another reason.

    Args:
        exception: what an action or a streaming query of a DataFrame of ``rows`` raised.
    """
    for text in _texts(exception):
        if found := _DECODE.search(text):
            return stopped_at(f"{found[1]}: {found[2]}")
    return None


def stopped_at(record: str) -> DecodeError:
    """The error for the record that stops a job, worded as ``topic …, partition …, offset …: why``."""
    where, _, why = record.partition(": ")
    hint = "compare the record with the declared format; dead_letters in the pipeline file lets the feed continue"
    if re.match(BAD_TIMESTAMP_PATTERN, why):
        hint = "dead_letters lets the feed continue; or decode.on_bad_timestamp: keep, with a null time"
    return DecodeError(f"A record cannot be decoded: {why}", where=where, hint=hint)


def registry_error_of(exception: BaseException) -> LakefeedError | None:
    """Unreachable or AccessDenied if the schema registry stopped the job; None if it was something else."""
    for text in _texts(exception):
        if found := _REGISTRY.search(text):
            kind: type[LakefeedError] = {
                "does not answer": Unreachable,
                "refuses the credentials": AccessDenied,
            }.get(found[1], WorldError)
            return kind(
                f"The schema registry {found[1]}",
                where=found[2],
                hint="the job resumes where it stopped once the registry answers",
            )
    return None


def _texts(exception: BaseException) -> Iterator[str]:
    seen: set[int] = set()
    current: BaseException | None = exception
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield str(current)
        current = current.__cause__ or current.__context__
