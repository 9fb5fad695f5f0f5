"""Whose checkpoint it is: a small file beside Spark's own, so that no pipeline goes on from another's position."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.errors import CheckpointMismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER_FILE = "lakefeed.json"
SCHEMA = "schema"

# S3A: one PUT with If-None-Match, whose refusal is the second of these exceptions.
CREATE_WITHOUT_PROBES = "fs.s3a.create.performance"
CONDITIONAL_CREATE = "fs.option.create.conditional.overwrite"
TAKEN = ("FileAlreadyExistsException", "RemoteFileChangedException")


@dataclass(frozen=True)
class Owner:
    """Who uses a checkpoint location. Holds no address and no secret: both may change without harm."""

    feed: str
    sink: str


class Claim:
    """A feed's hold on its checkpoint location, and what it has noted there.

    Args:
        spark: a session that can reach the location.
        location: the checkpoint location.
        owner: the feed and the sink that want to use it. A new location becomes theirs.

    Raises:
        CheckpointMismatch: if it belongs to another feed, feeds another sink, or is not lakefeed's.
    """

    def __init__(self, spark: SparkSession, location: str, owner: Owner) -> None:
        jvm: Any = spark._jvm
        root = jvm.org.apache.hadoop.fs.Path(location)
        self._owner = owner
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        self._mark = jvm.org.apache.hadoop.fs.Path(root, OWNER_FILE)
        self.schema: str | None = None
        text = _read(jvm, self._files, self._mark)
        if text is None:
            if self._files.exists(jvm.org.apache.hadoop.fs.Path(root, "metadata")):
                raise CheckpointMismatch(
                    "the checkpoint location holds a Spark checkpoint that lakefeed did not make",
                    where=location,
                    hint="name another checkpoint location for this pipeline",
                )
            if _create(self._files, self._mark, json.dumps(asdict(owner), indent=2)):
                return
            # Somebody else was first, a moment ago.
            text = _read(jvm, self._files, self._mark)
        self.schema = _schema_of(location, text or "", owner)

    def note_schema(self, schema: str) -> None:
        """Notes the schema that records are read with, where the sink itself has no place for it."""
        _create(self._files, self._mark, json.dumps({**asdict(self._owner), SCHEMA: schema}, indent=2), overwrite=True)
        self.schema = schema


def _read(jvm: Any, files: Any, path: Any) -> str | None:
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _create(files: Any, path: Any, text: str, *, overwrite: bool = False) -> bool:
    """Writes a file that is not there; False if it is there after all, which the store decides."""
    from py4j.protocol import Py4JJavaError

    builder = files.createFile(path).overwrite(overwrite).recursive()
    if path.toUri().getScheme() in ("s3a", "s3"):
        builder = builder.must(CREATE_WITHOUT_PROBES, "true")
        builder = builder if overwrite else builder.must(CONDITIONAL_CREATE, "true")
    try:
        stream = builder.build()
        stream.write(bytearray(text, "utf-8"))
        stream.close()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() in TAKEN:
            return False
        raise
    return True


def _schema_of(location: str, text: str, owner: Owner) -> str | None:
    """The schema that is noted in a file of this owner."""
    try:
        document = json.loads(text)
        schema: str | None = document.pop(SCHEMA, None)
        found = Owner(**document)
    except (ValueError, TypeError, AttributeError):
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
    return schema
