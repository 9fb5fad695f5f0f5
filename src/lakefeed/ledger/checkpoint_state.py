"""How far a checkpoint has come, as Spark's files say: ``offsets/N``, ``commits/N``, ``sources/0/0``, ``metadata``.

An entry is a line ``v1``, for ``offsets`` a line of Spark's own, and a line of JSON from the Kafka source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakefeed.offsets.ranges import Partition, spark_offsets

_ENTRY = re.compile(r"(offsets|commits)/(\d+)")
METADATA, INITIAL, STATE = "metadata", "sources/0/0", "state/"


class CheckpointFiles(Protocol):
    """Reads the files of one checkpoint location."""

    def names(self) -> Sequence[str]:
        """All names, relative to the location."""

    def read(self, name: str) -> str:
        """A file's text."""


@dataclass(frozen=True, kw_only=True)
class CheckpointState:
    """How far a checkpoint has come.

    Attributes:
        batch_id: the newest batch that was planned; None if none was.
        committed: whether Spark has marked it done.
        start: where it begins; None if that is not known.
        end: where it ends.
        damage: what is wrong with its files; None if they are as Spark leaves them. Then the rest may be wrong.
    """

    batch_id: int | None = None
    committed: bool = False
    start: Mapping[Partition, int] | None = None
    end: Mapping[Partition, int] = field(default_factory=dict)
    damage: str | None = None
    query_id: str | None = None
    """Spark's id of the query that it belongs to; None if it is new, or was not asked for."""

    has_state: bool = False
    """Whether it holds what a query keeps from batch to batch."""

    @property
    def position(self) -> Mapping[Partition, int] | None:
        """Up to where it takes the records for landed; None without a batch, or if it is not known."""
        return None if self.batch_id is None else self.end if self.committed else self.start


def checkpoint_state(
    files: CheckpointFiles, *, with_query_id: bool = False, is_numbered: bool = True
) -> CheckpointState:
    """Reads a checkpoint's state: two files at most, beside their names.

    Args:
        files: the location's.
        with_query_id: read the query's id too: one file more.
        is_numbered: whether its source has offsets; other sources' are not looked at.
    """
    names = set(files.names())
    logs: dict[str, set[int]] = {"offsets": set(), "commits": set()}
    for name in names:
        if match := _ENTRY.fullmatch(name):
            logs[match[1]].add(int(match[2]))
    planned, done = logs["offsets"], logs["commits"]
    # Spark writes metadata first, then where its source begins, then the first batch, then that it is done.
    if not planned:
        removed = bool(done) or (INITIAL in names and METADATA not in names)
        return CheckpointState(damage="the log of its batches is gone" if removed else None)
    newest = max(planned)
    committed = newest in done
    before = f"offsets/{newest - 1}" if newest else INITIAL
    damage = None
    if METADATA not in names:
        damage = f"its file '{METADATA}' is gone"
    elif max(done, default=-1) not in (newest, newest - 1) or not (committed or not is_numbered or before in names):
        damage = "entries of its logs are gone"
    try:
        end = _offsets(files, f"offsets/{newest}") if is_numbered else {}
        start = _offsets(files, before) if is_numbered and not committed and before in names else None
    except ValueError as error:
        return CheckpointState(batch_id=newest, committed=committed, damage=f"its file '{error}' is broken")
    query_id = None
    if with_query_id and METADATA in names:
        try:
            query_id = str(json.loads(files.read(METADATA))["id"])
        except (ValueError, KeyError, TypeError):
            damage = damage or f"its file '{METADATA}' is broken"
    return CheckpointState(
        batch_id=newest,
        committed=committed,
        start=start,
        end=end,
        damage=damage,
        query_id=query_id,
        has_state=any(name.startswith(STATE) for name in names),
    )


def _offsets(files: CheckpointFiles, name: str) -> dict[Partition, int]:
    text = files.read(name)
    try:
        return {
            (topic, partition): offset
            for topic, offsets in spark_offsets(text[text.rindex("\n") + 1 :]).items()
            for partition, offset in offsets.items()
        }
    except (ValueError, AttributeError):
        raise ValueError(name) from None
