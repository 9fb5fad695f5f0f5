"""Whose checkpoint it is: a small file beside Spark's own, so that no pipeline goes on from another's position."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.errors import CheckpointMismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER_FILE = "lakefeed.json"

# S3A: one PUT with If-None-Match, whose refusal is the second of these exceptions.
CREATE_WITHOUT_PROBES = "fs.s3a.create.performance"
CONDITIONAL_CREATE = "fs.option.create.conditional.overwrite"
TAKEN = ("FileAlreadyExistsException", "RemoteFileChangedException")


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
    text = _read(jvm, files, mark)
    if text is None:
        if files.exists(jvm.org.apache.hadoop.fs.Path(root, "metadata")):
            raise CheckpointMismatch(
                "the checkpoint location holds a Spark checkpoint that lakefeed did not make",
                where=location,
                hint="name another checkpoint location for this pipeline",
            )
        if _create(files, mark, json.dumps(asdict(owner), indent=2)):
            return
        # Somebody else was first, a moment ago.
        text = _read(jvm, files, mark)
    _compare(location, text or "", owner)


def _read(jvm: Any, files: Any, path: Any) -> str | None:
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _create(files: Any, path: Any, text: str) -> bool:
    """Writes a file that is not there; False if it is there after all, which the store decides."""
    from py4j.protocol import Py4JJavaError

    builder = files.createFile(path).overwrite(False).recursive()
    if path.toUri().getScheme() in ("s3a", "s3"):
        builder = builder.must(CREATE_WITHOUT_PROBES, "true").must(CONDITIONAL_CREATE, "true")
    try:
        stream = builder.build()
        stream.write(bytearray(text, "utf-8"))
        stream.close()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() in TAKEN:
            return False
        raise
    return True


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
