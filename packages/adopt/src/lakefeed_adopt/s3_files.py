"""Find the position of a Kafka Connect sink for S3, from its file names and the records of the last files.

A file has the name of its first record: ``topic+partition+offset.format`` (Confluent) or ``topic-partition-offset``
(Aiven). The number of records in a partition's last file gives the end offset. Both sinks write a file before they
commit their consumer group's offsets, so the group may be behind the files.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence

from lakefeed.clients.kafka.scan import offset_behind
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import S3
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import CheckpointMismatch, ConfigError, MissingExtra, RecordsLost, ResourceMissing
from lakefeed.ledger.checkpoint import StoredCheckpoint
from lakefeed.offsets.ranges import Partition
from lakefeed_adopt.position import OtherPosition

_TOPIC = r"(?P<topic>[A-Za-z0-9._-]{1,249})"
_NAMES = (
    re.compile(rf"{_TOPIC}\+(?P<partition>\d+)\+(?P<offset>\d+)(?:\.[\w.]+)?"),
    re.compile(rf"{_TOPIC}-(?P<partition>\d+)-(?P<offset>\d+)(?:\.[\w.]+)?"),
)
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_AVRO, _PARQUET = b"Obj\x01", b"PAR1"
_BASE64_CSV = re.compile(rb"[A-Za-z0-9+/=,]*")
_GROUP = "name the sink's consumer group instead: --from group:connect-NAME; its offsets are behind the files if the "
_GROUP += "sink was killed after it wrote a file and before it committed the offsets"


File = tuple[int, str]
"""The offset of a file's first record, and the file's name."""


def read_file_position(source: KafkaSource, place: str, *, s3: S3) -> OtherPosition:
    """Find the offset after the last file of each partition; ``place`` is the path above the files.

    Raises:
        ResourceMissing: no file has the name of a record of the feed's topics.
        ConfigError: a file's records cannot be counted, or do not determine its end.
        CheckpointMismatch: files of a partition overlap.
        RecordsLost: the topic has fewer records than the file, so it is another topic.
    """
    files = StoredCheckpoint(place, s3=s3, content="path of the files")
    found: dict[Partition, list[File]] = {}
    for name in files.names():
        matches = (pattern.fullmatch(name.rpartition("/")[2]) for pattern in _NAMES)
        match = next((each for each in matches if each is not None), None)
        if match is not None and source.reads(match["topic"]):
            key = match["topic"], int(match["partition"])
            found.setdefault(key, []).append((int(match["offset"]), name))
    if not found:
        raise ResourceMissing(
            "no file here is named topic+partition+offset or topic-partition-offset with a topic of the feed",
            where=place,
            hint="name the path above the files of the feed's topics",
        )
    topics = Topics(source.bootstrap_servers, options=source.client_options)
    for topic in sorted({topic for topic, _ in found}):
        if "compact" in (topics.setting(topic, "cleanup.policy") or ""):
            what = f"the topic {topic} is compacted, so the number of its records does not give a file's end offset"
            raise ConfigError(what, where=place, hint=_GROUP)
    offsets = {key: _end(files, key, sorted(listed)[-2:], source, where=place) for key, listed in sorted(found.items())}
    written = [files.written_at(name) for listed in found.values() for _, name in listed]
    return OtherPosition(offsets=offsets, place=place, written_at=max((at for at in written if at), default=None))


def _end(files: StoredCheckpoint, key: Partition, last: Sequence[File], source: KafkaSource, *, where: str) -> int:
    """Return the offset after the records of a partition's last file."""
    start, newest = last[-1]
    for offset, before in last[:-1]:
        if offset + count_records_of(files, before, where=where) > start:
            raise CheckpointMismatch(
                f"files of {key[0]}-{key[1]} overlap: {before} and {newest}",
                where=where,
                hint=f"the end is unknown if the sink partitions its files by time; {_GROUP}",
            )
    count = count_records_of(files, newest, where=where)
    # The sink may skip the records of aborted transactions, or read them. Compute both possible ends: they differ
    # only if the topic has such records.
    ends = {offset_behind(source, key, start, count, committed=each) for each in (True, False)}
    if None in ends:
        raise RecordsLost(
            f"{newest} has {count:,} records, but {key[0]}-{key[1]} has fewer from {start} on: it is another topic, or "
            "retention has removed them",
            where=where,
            hint=_GROUP,
        )
    if len(ends) > 1:
        what = f"aborted transactions are among the records of {newest}, and the sink may have read those or not"
        raise ConfigError(what, where=where, hint=_GROUP)
    return max(end for end in ends if end is not None)


def count_records_of(files: StoredCheckpoint, name: str, *, where: str) -> int:
    """Return the number of records in a file: Parquet, Avro, JSON lines, a JSON array, or CSV of Base64.

    Raises:
        ConfigError: the file has another format, for example text whose records may contain line breaks.
    """
    import pyarrow as pa

    with files.opened(name) as file:
        head = file.read(len(_PARQUET))
        file.seek(0)
        if head == _PARQUET:
            import pyarrow.parquet as pq

            return int(pq.ParquetFile(file).metadata.num_rows)
        if head == _AVRO:
            try:
                from fastavro import block_reader
            except ImportError:
                raise MissingExtra.of("fastavro", "read", "counting the records of Avro files") from None
            return sum(block.num_records for block in block_reader(file))
        codec = next((codec for suffix, codec in _COMPRESSED.items() if name.endswith(suffix)), None)
        stream = file if codec is None else pa.CompressedInputStream(file, codec)
        try:
            count = _count_lines(io.BufferedReader(stream), ended="+" in name.rpartition("/")[2])
        except (OSError, pa.ArrowInvalid):
            count = None
    if count is None:
        raise ConfigError(f"the records of {name} cannot be counted", where=where, hint=_GROUP)
    return count


def _count_lines(lines: Iterable[bytes], *, ended: bool) -> int | None:
    """Return the number of records in a text; None if a record may have several lines.

    Args:
        ended: whether a line break ends every record; otherwise it separates records, and the last one may be empty.
    """
    count, text = 0, b""
    for text in lines:
        if count == 0 and text.rstrip() == b"[" and not ended:
            return len(json.loads(b"".join([text, *lines])))
        count += 1
        if ended or _BASE64_CSV.fullmatch(text.rstrip(b"\n")) is None:
            try:
                json.loads(text)
            except ValueError:
                return None
    return count if ended or not text.endswith(b"\n") else count + 1
