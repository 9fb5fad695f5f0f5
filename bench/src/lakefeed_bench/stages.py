"""Attribute the samples of a CPU profile to the stages of a feed, by the names of stack frames.

The profile is async-profiler's collapsed form: a line per stack, from its root to its leaf, with the number of its
samples. Spark pulls rows through all stages, so a stack has frames of several stages. A sample belongs to the innermost
frame that a rule matches; a frame without a rule, such as ``memmove``, counts for its caller.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

Stage = Literal[
    "fetch", "decompress", "decode", "project", "encode", "compress", "upload", "commit", "gc", "jit", "other"
]
STAGES: tuple[Stage, ...] = get_args(Stage)

_CODEC = re.compile(r"luben/zstd|jpountz/(?:lz4|xxhash)|xerial/snappy|java/util/zip|^ZSTD_|^HUF_|^FSE_|^LZ4_")
_KAFKA = re.compile(r"org/apache/kafka/|spark/sql/kafka010/|io/lakefeed/kafka/")
_THREADS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    ("gc", re.compile(r"^\[(?:GC Thread|G1 |VM Thread|VM Periodic)")),
    ("jit", re.compile(r"^\[C[12] CompilerThre")),
)
# The stage of a frame is that of the first pattern that matches the frame.
_FRAMES: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    ("upload", re.compile(r"awssdk/|hadoop/fs/s3a/|iceberg/aws/|io/lakefeed/s3/|/S3OutputStream")),
    ("fetch", _KAFKA),
    ("decode", re.compile(r"io/lakefeed/decode/|org/apache/avro/|spark/sql/avro/")),
    (
        "commit",
        re.compile(
            r"io/lakefeed/(?:commit|checkpoint|sink)/|iceberg/(?:SnapshotProducer|FastAppend|MergeAppend|Base|Manifest"
            r"|TableMetadata|jdbc/)|HDFSMetadataLog|FileStreamSinkLog|FileCommitProtocol|OutputCommitter|org/sqlite/"
        ),
    ),
    (
        "encode",
        re.compile(
            r"(?:shaded/)?org/apache/parquet/|iceberg/(?:parquet|spark/data|io)/|datasources/parquet/|io/lakefeed/parquet/"
        ),
    ),
    ("project", re.compile(r"spark/sql/(?:catalyst|execution)/|spark/unsafe/|io/lakefeed/")),
)


def stage_of(frames: list[str]) -> Stage:
    """Return the stage of a stack, whose first frame is the thread's name or the root."""
    for stage, thread in _THREADS:
        if frames and thread.search(frames[0]):
            return stage
    for frame in reversed(frames):
        if _CODEC.search(frame):
            return "decompress" if any(map(_KAFKA.search, frames)) else "compress"
        for stage, pattern in _FRAMES:
            if pattern.search(frame):
                return stage
    return "other"


def shares(collapsed: str) -> dict[Stage, float]:
    """Return each stage's share of the samples; without samples, all shares are 0."""
    samples: Counter[Stage] = Counter()
    for frames, count in _stacks(collapsed.splitlines()):
        samples[stage_of(frames)] += count
    total = samples.total() or 1
    return {stage: round(samples[stage] / total, 4) for stage in STAGES}


def _stacks(lines: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if count.isdigit():
            yield stack.split(";"), int(count)
