"""Whose checkpoint it is: a small file beside Spark's own, so that no pipeline goes on from another's position."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.errors import CheckpointMismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER_FILE = "lakefeed.json"


@dataclass(frozen=True)
class Owner:
    """Who uses a checkpoint location. Holds no address and no secret: both may change without harm."""

    feed: str
    sink: str


def claim(spark: SparkSession, location: str, owner: Owner) -> None:
    """Makes sure that a checkpoint location is this feed's, and marks it if it is new.

    Args:
        spark: a session that can reach the location.
        location: the checkpoint location.
        owner: the feed and the sink that want to use it.

    Raises:
        CheckpointMismatch: if it belongs to another feed, feeds another sink, or is not lakefeed's.
    """
    jvm: Any = spark._jvm
    root = jvm.org.apache.hadoop.fs.Path(location)
    files = root.getFileSystem(spark._jsc.hadoopConfiguration())
    mark = jvm.org.apache.hadoop.fs.Path(root, OWNER_FILE)
    if files.exists(mark):
        stream = files.open(mark)
        try:
            text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        _compare(location, text, owner)
        return
    if files.exists(jvm.org.apache.hadoop.fs.Path(root, "metadata")):
        raise CheckpointMismatch(
            "the checkpoint location holds a Spark checkpoint that lakefeed did not make",
            where=location,
            hint="name another checkpoint location for this pipeline",
        )
    stream = files.create(mark, False)
    stream.write(bytearray(json.dumps(asdict(owner), indent=2), "utf-8"))
    stream.close()


def _compare(location: str, text: str, owner: Owner) -> None:
    try:
        found = Owner(**json.loads(text))
    except (ValueError, TypeError):
        raise CheckpointMismatch(
            f"{OWNER_FILE} in the checkpoint location is not what lakefeed writes",
            where=f"{location}/{OWNER_FILE}",
            hint="name another checkpoint location for this pipeline",
        ) from None
    if found != owner:
        raise CheckpointMismatch(
            f"the checkpoint belongs to feed '{found.feed}' into {found.sink}; "
            f"this is feed '{owner.feed}' into {owner.sink}",
            where=location,
            hint="give each pipeline a checkpoint location of its own",
        )
