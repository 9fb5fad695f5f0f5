"""Whose checkpoint it is: a small file beside Spark's own, so that no pipeline resumes from another's position."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark import jvm
from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.checkpoint_state import METADATA, CheckpointFiles, CheckpointState, checkpoint_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakefeed.config.models import PipelineConfig

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

    @classmethod
    def of(cls, config: PipelineConfig) -> Owner:
        """A pipeline's feed and sink."""
        return cls(feed=config.name, sink=f"{config.sink.kind} {config.sink.chosen.target}".rstrip())


@dataclass(frozen=True)
class Note:
    """What lakefeed keeps in a checkpoint location.

    Attributes:
        feed: the feed's name.
        sink: its table or path.
        schema: the schema that records are read with, where the sink has no place for it.
        topic_ids: which topics were read, where the sink has no ledger.
        move: the snapshot of the newest move of the feed that the checkpoint knows of.
        state: what the query keeps from batch to batch: see ``lakefeed.records.transform.plan``.
        sinks: those beside the feed's own that have been begun.
        transform: identifies the transform of the newest start: see ``lakefeed.records.transform.plan``.
    """

    feed: str
    sink: str
    schema: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    move: int | None = None
    state: Sequence[str] = ()
    sinks: Sequence[str] = ()
    transform: str | None = None

    def to_json(self) -> str:
        """As the file has it: what is empty is left out."""
        return json.dumps(
            {key: value for key, value in asdict(self).items() if value not in (None, {}, (), [])}, indent=2
        )


class Claim:
    """A feed's hold on its checkpoint location, and what it has noted there.

    Args:
        spark: a session that can reach the location.
        location: the checkpoint location.
        owner: the feed and the sink that want to use it. A new location becomes theirs.
        transform: what the feed's transform is known by, noted with a new location.

    Raises:
        CheckpointMismatch: if it belongs to another feed, feeds another sink, or is not lakefeed's.
    """

    def __init__(self, spark: SparkSession, location: str, owner: Owner, *, transform: str | None = None) -> None:
        gateway: Any = spark._jvm
        session: Any = spark
        self._location = location
        self._java = jvm.java(spark).checkpoint.CheckpointFiles(location, session._jsc.hadoopConfiguration())
        root = gateway.org.apache.hadoop.fs.Path(location)
        self._files = root.getFileSystem(session._jsc.hadoopConfiguration())
        self._mark = gateway.org.apache.hadoop.fs.Path(root, OWNER_FILE)
        found = noted(self._reader(), where=location)
        if found is None:
            self.noted = self._written = Note(owner.feed, owner.sink, transform=transform)
            if _create(self._files, self._mark, self.noted.to_json()):
                return
            # Somebody else was first, a moment ago.
            self._java.forget()
            found = noted(self._reader(), where=location)
        self.noted = self._written = owned(found, owner, where=location)

    @property
    def schema(self) -> str | None:
        """The schema that was noted last."""
        return self.noted.schema

    def note(self, **changes: Any) -> None:
        """Notes something, and what is to be remembered, in one request; in none if it is noted already."""
        self.remember(**changes)
        if self.noted != self._written:
            _create(self._files, self._mark, self.noted.to_json(), overwrite=True)
            self._written = self.noted

    def remember(self, **changes: Any) -> None:
        """To be noted together with what is noted next."""
        self.noted = replace(self.noted, **changes)

    def note_schema(self, schema: str) -> None:
        """Notes the schema that records are read with, where the sink itself has no place for it."""
        self.note(schema=schema)

    def state(self, *, with_query_id: bool = False, is_numbered: bool = True) -> CheckpointState:
        """How far Spark has come there, as it was when the location was claimed."""
        return checkpoint_state(self._reader(), with_query_id=with_query_id, is_numbered=is_numbered)

    def discard(self) -> None:
        """Removes what Spark keeps there: the next query starts over."""
        self._java.discard()

    def _reader(self) -> CheckpointFiles:
        return _JavaFiles(self._java)


class _JavaFiles:
    def __init__(self, files: Any) -> None:
        self._files = files

    def names(self) -> Sequence[str]:
        return str(self._files.names()).split("\n")

    def read(self, name: str) -> str:
        return str(self._files.read(name))


def noted(files: CheckpointFiles, *, where: str) -> Note | None:
    """What lakefeed has noted in a location; None if it is new.

    Raises:
        CheckpointMismatch: it is not lakefeed's.
    """
    names = files.names()
    if OWNER_FILE not in names:
        if METADATA in names:
            raise CheckpointMismatch(
                "the checkpoint location holds a Spark checkpoint that lakefeed did not make",
                where=where,
                hint="name another checkpoint location for this pipeline",
            )
        return None
    try:
        document = json.loads(files.read(OWNER_FILE))
        # A newer lakefeed may have noted more.
        return Note(**{each.name: document[each.name] for each in fields(Note) if each.name in document})
    except (ValueError, TypeError, AttributeError):
        raise CheckpointMismatch(
            f"{OWNER_FILE} in the checkpoint location is not what lakefeed writes",
            where=f"{where}/{OWNER_FILE}",
            hint="name another checkpoint location for this pipeline",
        ) from None


def owned(found: Note | None, owner: Owner, *, where: str) -> Note:
    """The note, if it is this owner's.

    Raises:
        CheckpointMismatch: it is another's; the error says what differs, and what that means.
    """
    note = found or Note(owner.feed, owner.sink)
    meanings = {
        "feed": ("name", "a feed resumes under its own name only: this one would start from the beginning beside it"),
        "sink": ("sink", "what has landed is in the old one, and would be missing in the new one"),
    }
    changes = [
        f"\n    {setting}: {getattr(note, key)} → {getattr(owner, key)}: {meaning}"
        for key, (setting, meaning) in meanings.items()
        if getattr(note, key) != getattr(owner, key)
    ]
    if changes:
        raise CheckpointMismatch(
            f"the checkpoint belongs to feed '{note.feed}' into {note.sink}; "
            f"this is feed '{owner.feed}' into {owner.sink}{''.join(changes)}",
            where=where,
            hint="put the setting back; or name a checkpoint location of this pipeline's own, which starts over",
        )
    return note


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
