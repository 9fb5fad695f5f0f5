"""Claims a checkpoint location for one pipeline, refuses it to all other pipelines, and reads Spark's files in it.

lakefeed writes ``lakefeed.json`` beside Spark's files (``offsets/N``, ``commits/N``, ``sources/0/0``, ``metadata``).
The last line of a file in ``offsets``, and of ``sources/0/0``, is the source's JSON with the offsets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lakefeed.clients.environment import write_whole
from lakefeed.clients.spark import jvm
from lakefeed.config.addresses import is_local, local_folder
from lakefeed.config.connections import S3
from lakefeed.errors import AccessDenied, CheckpointMismatch, MissingExtra, Unreachable
from lakefeed.lazy import SparkSession, py4j
from lakefeed.offsets.ranges import Partition, spark_offsets

if TYPE_CHECKING:
    from lakefeed.config.models import PipelineConfig

OWNER_FILE = "lakefeed.json"
_ENTRY = re.compile(r"(offsets|commits)/(\d+)")
METADATA, INITIAL, STATE = "metadata", "sources/0/0", "state/"

# With these options, S3A creates a file by one PUT with If-None-Match. If the file exists, S3A raises one of TAKEN.
CREATE_WITHOUT_PROBES = "fs.s3a.create.performance"
CONDITIONAL_CREATE = "fs.option.create.conditional.overwrite"
TAKEN = ("FileAlreadyExistsException", "RemoteFileChangedException")


@dataclass(frozen=True)
class Owner:
    """The feed and the sink that own a checkpoint location, without addresses and secrets, which may change."""

    feed: str
    sink: str

    @classmethod
    def of(cls, config: PipelineConfig) -> Owner:
        return cls(feed=config.name, sink=f"{config.sink.kind} {config.sink.chosen.target}".rstrip())


@dataclass(frozen=True)
class Note:
    """The content of ``lakefeed.json``.

    Attributes:
        schema: the reader's schema, if the sink cannot store it.
        topic_ids: the ids of the topics that the feed has read, if the sink has no ledger.
        move: the snapshot of the newest move that was applied to the checkpoint.
        state: the state that the query keeps between batches: see ``QueryPlan.state``.
        sinks: the additional sinks that the feed has written to.
        transform: the ``transform_id`` at the newest start.
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
        written = {key: value for key, value in asdict(self).items() if value not in (None, {}, (), [])}
        return json.dumps(written, indent=2)


class Claim:
    """The claim of a feed on its checkpoint location.

    The constructor creates ``lakefeed.json`` in a new location, and raises CheckpointMismatch if the location belongs
    to another feed, another sink or other software.
    """

    def __init__(self, spark: SparkSession, location: str, owner: Owner, *, transform: str | None = None) -> None:
        session: Any = spark
        hadoop, configuration = session._jvm.org.apache.hadoop.fs, session._jsc.hadoopConfiguration()
        self._java = jvm.java(spark).checkpoint.CheckpointFiles(location, configuration)
        self._hadoop, self._root = hadoop, hadoop.Path(location)
        self._files = self._root.getFileSystem(configuration)
        # Write local files without Hadoop, whose local file system has neither atomic writes nor exclusive creation.
        self._folder = local_folder(location) if is_local(location) else None
        stored = read_note(self, where=location)
        if stored is None:
            self.noted = self._written = Note(owner.feed, owner.sink, transform=transform)
            if self._create(OWNER_FILE, self.noted.to_json(), overwrite=False):
                return
            # Another driver has written the file since this driver listed the files.
            self.refresh()
            stored = read_note(self, where=location)
        self.noted = self._written = require_owner(stored, owner, where=location)

    @property
    def schema(self) -> str | None:
        return self.noted.schema

    def note(self, **changes: Any) -> None:
        """Write ``changes`` and all remembered changes to ``lakefeed.json`` in one request, if there are any."""
        self.remember(**changes)
        if self.noted != self._written:
            self._create(OWNER_FILE, self.noted.to_json())
            self._written = self.noted

    def remember(self, **changes: Any) -> None:
        """Keep changes in memory; the next ``note`` writes them."""
        self.noted = replace(self.noted, **changes)

    def discard(self) -> None:
        """Delete Spark's files, so that the next query starts over."""
        self._java.discard()

    def names(self) -> Sequence[str]:
        """Return the names of all files; lists the location once after the claim and after each ``refresh``."""
        return str(self._java.names()).split("\n")

    def read(self, name: str) -> str:
        return str(self._java.read(name))

    def refresh(self) -> None:
        """Discard the cached list of files after another program has written files; ``names`` lists them again."""
        self._java.forget()

    def write(self, name: str, text: str) -> None:
        self._create(name, text)

    def remove(self, name: str) -> None:
        self._files.delete(self._hadoop.Path(self._root, name), False)

    def _create(self, name: str, text: str, *, overwrite: bool = True) -> bool:
        """Write a file in one request; without ``overwrite``, return False if the file exists already."""
        if self._folder is not None:
            return write_whole(self._folder / name, text, overwrite=overwrite)
        path = self._hadoop.Path(self._root, name)
        builder = self._files.createFile(path).overwrite(overwrite).recursive()
        if path.toUri().getScheme() in ("s3a", "s3"):
            builder = builder.must(CREATE_WITHOUT_PROBES, "true")
            builder = builder if overwrite else builder.must(CONDITIONAL_CREATE, "true")
        try:
            stream = builder.build()
            stream.write(bytearray(text, "utf-8"))
            stream.close()
        except py4j.Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in TAKEN:
                return False
            raise
        return True


def read_note(files: CheckpointFiles, *, where: str) -> Note | None:
    """Read a location's ``lakefeed.json``; None in a new location. Refuse a location with another tool's checkpoint."""
    names = files.names()
    if OWNER_FILE not in names:
        if METADATA in names:
            what = "the checkpoint location has a Spark checkpoint that lakefeed did not make"
            raise CheckpointMismatch(what, where=where, hint="name another checkpoint location for this pipeline")
        return None
    try:
        document = json.loads(files.read(OWNER_FILE))
        # Ignore unknown fields, which a newer version of lakefeed may have written.
        return Note(**{each.name: document[each.name] for each in fields(Note) if each.name in document})
    except (ValueError, TypeError, AttributeError):
        what = f"{OWNER_FILE} in the checkpoint location is broken, or lakefeed did not write it"
        hint = "restore the file, or name another checkpoint location for this pipeline"
        raise CheckpointMismatch(what, where=f"{where}/{OWNER_FILE}", hint=hint) from None


def require_owner(note: Note | None, owner: Owner, *, where: str) -> Note:
    """Return the note of ``owner``; if another feed or sink owns it, raise an error that lists the differences."""
    note = note or Note(owner.feed, owner.sink)
    meanings = {
        "feed": ("name", "a feed resumes only under its own name; under another name it starts from the beginning"),
        "sink": ("sink", "the rows until now are in the old sink, and the new sink would lack them"),
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
            hint="change the setting back; or name a new checkpoint location, with which this pipeline starts over",
        )
    return note


class CheckpointFiles(Protocol):
    """Reads the files of a checkpoint location by their names relative to the location."""

    def names(self) -> Sequence[str]: ...

    def read(self, name: str) -> str: ...


@dataclass(frozen=True, kw_only=True)
class CheckpointState:
    """The state of a checkpoint.

    Attributes:
        batch_id: the newest batch that Spark has planned; None without a batch.
        committed: whether Spark has written that batch's file in ``commits``.
        start: the offsets where that batch begins; None if the batch is committed, or if the file with the offsets is
            missing.
        end: the offsets where that batch ends.
        damage: says which files are broken or missing, if any; the other fields may then be wrong.
    """

    batch_id: int | None = None
    committed: bool = False
    start: Mapping[Partition, int] | None = None
    end: Mapping[Partition, int] = field(default_factory=dict)
    damage: str | None = None
    query_id: str | None = None
    """Spark's id of the query; None in a new checkpoint, or if the caller did not ask for the id."""

    has_state: bool = False
    """Whether the checkpoint has state that a query keeps between batches."""

    @property
    def position(self) -> Mapping[Partition, int] | None:
        """The offsets where the next batch begins; None without a batch, or if the offsets are unknown."""
        return None if self.batch_id is None else self.end if self.committed else self.start


def checkpoint_state(
    files: CheckpointFiles, *, with_query_id: bool = False, is_numbered: bool = True
) -> CheckpointState:
    """Read a checkpoint's state by one listing and at most two files, or three ``with_query_id``.

    If the source is not ``is_numbered``, its batches have no offsets.
    """
    names = set(files.names())
    logs: dict[str, set[int]] = {"offsets": set(), "commits": set()}
    for name in names:
        if match := _ENTRY.fullmatch(name):
            logs[match[1]].add(int(match[2]))
    planned, done = logs["offsets"], logs["commits"]
    # Spark writes in this order: metadata, the source's start, the first batch's offsets, that batch's commit.
    if not planned:
        removed = bool(done) or (INITIAL in names and METADATA not in names)
        return CheckpointState(damage="the files of its folder 'offsets' are gone" if removed else None)
    newest = max(planned)
    committed = newest in done
    before = f"offsets/{newest - 1}" if newest else INITIAL
    damage = None
    if METADATA not in names:
        damage = f"its file '{METADATA}' is gone"
    elif max(done, default=-1) not in (newest, newest - 1) or not (committed or not is_numbered or before in names):
        damage = "files are missing in its folder 'offsets' or 'commits'"
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
        return spark_offsets(text[text.rindex("\n") + 1 :])
    except (ValueError, AttributeError):
        raise ValueError(name) from None


class StoredCheckpoint:
    """Reads and writes the files of a location (``s3a://bucket/path`` or a local path) without Spark.

    ``content`` is the word for these files in error messages, such as checkpoint.
    """

    def __init__(self, location: str, *, s3: S3, content: str = "checkpoint") -> None:
        try:
            from pyarrow import fs
        except ImportError:
            raise MissingExtra.of("pyarrow", "read", f"reading a {content} without Spark") from None
        self._location, self._content = location, content
        self._times: dict[str, float] | None = None
        scheme, _, rest = location.rpartition("://")
        self._folder = Path(rest.removeprefix("file:")) if scheme in ("", "file") else None
        if self._folder is not None:
            self._path = str(self._folder)
            self._files: Any = fs.LocalFileSystem()
            return
        self._path = rest
        keys = {"access_key": s3.access_key, "secret_key": s3.secret_key, "session_token": s3.session_token}
        self._files = fs.S3FileSystem(
            region=s3.region,
            endpoint_override=s3.endpoint,
            force_virtual_addressing=not s3.uses_path_style,
            **{name: secret.get_secret_value() for name, secret in keys.items() if secret is not None},
        )

    def names(self) -> Sequence[str]:
        return list(self._listed())

    def written_at(self, name: str) -> float | None:
        """Return the time of a file's last write in seconds since 1970; None if the file does not exist."""
        return self._listed().get(name)

    def _listed(self) -> Mapping[str, float]:
        from pyarrow import fs

        if self._times is None:
            selector: Any = fs.FileSelector(self._path, recursive=True, allow_not_found=True)
            try:
                infos = self._files.get_file_info(selector)
            except OSError as error:
                raise self._error(error) from None
            files = (file for file in infos if file.is_file)
            self._times = {file.path[len(self._path) + 1 :]: (file.mtime_ns or 0) / 1e9 for file in files}
        return self._times

    def read(self, name: str) -> str:
        return self.read_bytes(name).decode("utf-8", errors="replace")

    def read_bytes(self, name: str) -> bytes:
        with self.opened(name) as file:
            return bytes(file.read())

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Open a file for reading as a pyarrow file, which can read parts of the file."""
        try:
            with self._files.open_input_file(f"{self._path}/{name}") as file:
                yield file
        except OSError as error:
            raise self._error(error) from None

    def write(self, name: str, text: str) -> None:
        try:
            if self._folder is not None:
                write_whole(self._folder / name, text, overwrite=True)
                return
            with self._files.open_output_stream(f"{self._path}/{name}") as stream:
                stream.write(text.encode())
        except OSError as error:
            raise self._error(error) from None

    def remove(self, name: str) -> None:
        try:
            self._files.delete_file(f"{self._path}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error(error) from None

    def _error(self, error: OSError) -> AccessDenied | Unreachable:
        if "ACCESS_DENIED" in str(error) or "HTTP status 403" in str(error):
            hint = "check the access key, and the rights of its user on this bucket and path"
            return AccessDenied(f"the S3 store refuses access to the {self._content}", where=self._location, hint=hint)
        what = f"the {self._content} is unavailable: {str(error).splitlines()[0][:200]}"
        hint = "test the connection to the store: lakefeed check pipeline.yaml --connect"
        return Unreachable(what, where=self._location, hint=hint)
