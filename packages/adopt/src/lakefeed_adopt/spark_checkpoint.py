"""Read the position of a plain Structured Streaming job from its checkpoint, or of Hudi Streamer from its commits.

Spark writes ``offsets/N``, with the end offsets of batch N, before the batch, and ``commits/N`` after it. If only
``offsets/N`` exists, the batch may or may not have written its rows.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any

from lakefeed.config.connections import S3
from lakefeed.errors import CheckpointMismatch, ConfigError, MissingExtra, ResourceMissing
from lakefeed.ledger.checkpoint import METADATA, OWNER_FILE, STATE, StoredCheckpoint
from lakefeed.offsets.ranges import Partition, spark_offsets
from lakefeed_adopt.position import OtherPosition

INITIAL = re.compile(r"sources/\d+/0")
_FIRST_LINES = 2  # The first line is the log's version, the second the batch's watermark and settings.


def read_spark_checkpoint(files: StoredCheckpoint, *, where: str) -> OtherPosition:
    """Return the position of the Spark job that uses a checkpoint location.

    Raises:
        ResourceMissing: there is no checkpoint.
        ConfigError: the job has another source than Kafka, keeps state, or is a feed of lakefeed.
        CheckpointMismatch: files of the checkpoint are missing or broken.
    """
    names = set(files.names())
    if OWNER_FILE in names:
        raise ConfigError(
            "this is the checkpoint of a feed of lakefeed, and not of another tool",
            where=where,
            hint="run its pipeline; lakefeed offsets show PIPELINE prints its position",
        )
    if METADATA not in names:
        raise ResourceMissing(
            "there is no checkpoint of Structured Streaming here: it has no file 'metadata'",
            where=where,
            hint="name the job's checkpointLocation",
        )
    if any(name.startswith(STATE) for name in names):
        raise ConfigError(
            "the job keeps state between batches, which lakefeed cannot take over",
            where=where,
            hint="let the job read its topics to their ends, and name a new table for the feed",
        )
    planned, done = _entries(names, "offsets"), _entries(names, "commits")
    if not planned:
        raise ResourceMissing("the job has planned no batch yet", where=where, hint="run a new feed instead")
    newest = max(planned)
    try:
        query_id = str(json.loads(files.read(METADATA))["id"])
    except (ValueError, KeyError, TypeError):
        raise _damaged(METADATA, where) from None
    end = _offsets(files, f"offsets/{newest}", where)
    written = [files.written_at(name) for name in (f"offsets/{newest}", f"commits/{newest}") if name in names]
    written_at = max((time for time in written if time is not None), default=None)
    position = OtherPosition(offsets=end, place=where, batch_id=newest, query_id=query_id, written_at=written_at)
    if newest in done:
        return position
    if newest - 1 in planned:
        start = _offsets(files, f"offsets/{newest - 1}", where)
    else:
        start = _initial_offsets(files, sorted(name for name in names if INITIAL.fullmatch(name)), where)
        if newest or not start:
            raise _damaged(f"offsets/{newest - 1}" if newest else "sources/0/0", where)
    # The log has no start for a partition that is new in this batch; the feed begins at the partition's first
    # record.
    known = {key: at for key, at in start.items() if key in end}
    return OtherPosition(
        offsets=known, place=where, open_batch=end, batch_id=newest, query_id=query_id, written_at=written_at
    )


def _entries(names: set[str], log: str) -> set[int]:
    stems = (name.removeprefix(f"{log}/") for name in names if name.startswith(f"{log}/"))
    return {int(stem) for stem in stems if stem.isdigit()}


def _offsets(files: StoredCheckpoint, name: str, where: str) -> dict[Partition, int]:
    """Return the end offsets in an entry of Spark's offsets log, which has a line per source of the query."""
    lines = files.read(name).splitlines()[_FIRST_LINES:]
    found: dict[Partition, int] = {}
    for line in lines:
        if line.strip() == "-":  # The source of this line has had no data yet.
            continue
        try:
            offsets = spark_offsets(line)
        except (ValueError, AttributeError, TypeError):
            raise ConfigError(
                "the job reads a source that is not Kafka, or its checkpoint is broken",
                where=f"{where}/{name}",
                hint="lakefeed takes over only jobs that read topics of Kafka and nothing else",
            ) from None
        if twice := found.keys() & offsets.keys():
            topic, partition = min(twice)
            what = f"several sources of the job read {topic}-{partition}, perhaps up to different offsets"
            hint = "let the job read its topics to their ends, and name a new table for the feed"
            raise ConfigError(what, where=f"{where}/{name}", hint=hint)
        found |= offsets
    if not found:
        raise _damaged(name, where)
    return found


def _initial_offsets(files: StoredCheckpoint, names: list[str], where: str) -> dict[Partition, int]:
    """Return the start offsets of all sources; they are in the last line of each source's file."""
    found: dict[Partition, int] = {}
    for name in names:
        try:
            found |= spark_offsets(files.read(name).splitlines()[-1])
        except (ValueError, AttributeError, TypeError, IndexError):
            raise _damaged(name, where) from None
    return found


def _damaged(name: str, where: str) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"the checkpoint is damaged: its file '{name}' is gone or broken",
        where=where,
        hint="restore the file, or start the job once more so that it completes a batch",
    )


# The file that completes a commit of Hudi Streamer also has the offsets after the commit's records. So the newest
# complete commit has the table's position, whenever the streamer stops. Hudi 0.x writes JSON, Hudi 1.x writes Avro.
_TIMELINES = (".hoodie/timeline", ".hoodie")
_COMMIT = re.compile(r"(\d{14,17})(?:_\d{14,17})?\.(?:commit|deltacommit|replacecommit)")
_KEYS = ("streamer.checkpoint.key.v2", "deltastreamer.checkpoint.key")
_OFFSETS = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})(?P<offsets>(?:,\d+:\d+)+)")
_AVRO = b"Obj\x01"


def read_hudi_position(place: str, *, s3: S3) -> OtherPosition:
    """Return the position in the newest commit of Hudi Streamer to the table with the path ``place``.

    Raises:
        ResourceMissing: there is no Hudi table, or no commit of the streamer.
        ConfigError: the streamer's source is not a topic.
        CheckpointMismatch: a commit's metadata is broken.
    """
    for timeline in _TIMELINES:
        files = StoredCheckpoint(f"{place}/{timeline}", s3=s3, content="Hudi table")
        commits = sorted((name for name in files.names() if _COMMIT.fullmatch(name)), reverse=True)
        if commits:
            break
    else:
        raise ResourceMissing(
            "there is no finished commit of Hudi here", where=place, hint="name the table's path, which has .hoodie"
        )
    for name in commits:
        where = f"{place}/{timeline}/{name}"
        extra = _extra_metadata(files.read_bytes(name), where)
        if (text := next((extra[key] for key in _KEYS if extra.get(key)), None)) is not None:
            written = [at for at in map(files.written_at, files.names()) if at is not None]
            return OtherPosition(
                offsets=_offsets_of_hudi(text, where), place=where, written_at=max(written, default=None)
            )
    raise ResourceMissing(
        "no commit of the table has a checkpoint of Hudi Streamer",
        where=place,
        hint="if a job of Spark or Flink writes the table, name that job's position: spark-checkpoint:PATH or "
        "group:NAME",
    )


def _extra_metadata(content: bytes, where: str) -> Mapping[str, str]:
    try:
        if content.startswith(_AVRO):
            from fastavro import reader

            document: Any = next(iter(reader(io.BytesIO(content))))
        else:
            document = json.loads(content or b"{}")
        return {str(key): str(value) for key, value in (document.get("extraMetadata") or {}).items()}
    except ImportError:
        raise MissingExtra.of("fastavro", "read", "reading the timeline of Hudi") from None
    except Exception as error:  # fastavro raises arbitrary errors for broken bytes.
        hint = "start the streamer once more, so that it completes another commit, and stop it"
        raise CheckpointMismatch("the commit's metadata cannot be read", where=where, hint=hint) from error


def _offsets_of_hudi(text: str, where: str) -> dict[Partition, int]:
    """Parse text such as ``topic,0:123,1:456``: the topic, and the next offset of each partition."""
    match = _OFFSETS.fullmatch(text)
    if match is None:
        what = f"the streamer reads another source than a topic: its checkpoint is '{text[:100]}'"
        raise ConfigError(what, where=where, hint="name the table of a streamer that reads a topic of Kafka")
    pairs = (pair.split(":") for pair in match["offsets"].strip(",").split(","))
    return {(match["topic"], int(partition)): int(at) for partition, at in pairs}
