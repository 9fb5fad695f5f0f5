"""Read the position of Hudi Streamer from the commits of its table.

The file that completes a commit of the streamer also has the offsets after the commit's records. So the newest complete
commit has the table's position, whenever the streamer stops. Hudi 0.x writes JSON, Hudi 1.x writes Avro.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any

from lakefeed.config.connections import S3
from lakefeed.errors import CheckpointMismatch, ConfigError, MissingExtra, ResourceMissing
from lakefeed.ledger.checkpoint import StoredCheckpoint
from lakefeed.offsets.ranges import Partition
from lakefeed_adopt.position import OtherPosition

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
            return OtherPosition(offsets=_offsets(text, where), place=where, written_at=max(written, default=None))
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


def _offsets(text: str, where: str) -> dict[Partition, int]:
    """Parse text such as ``topic,0:123,1:456``: the topic, and the next offset of each partition."""
    match = _OFFSETS.fullmatch(text)
    if match is None:
        what = f"the streamer reads another source than a topic: its checkpoint is '{text[:100]}'"
        raise ConfigError(what, where=where, hint="name the table of a streamer that reads a topic of Kafka")
    pairs = (pair.split(":") for pair in match["offsets"].strip(",").split(","))
    return {(match["topic"], int(partition)): int(at) for partition, at in pairs}
