"""Write a feed's rows and the entries of its ledger to a Delta table, and read them back.

Guarantee: exactly-once. Spark writes the batch's files first. One commit then adds the files and the entry, which is
the table's metadata of the domain ``lakefeed.<feed>``. The commit is refused unless its entry follows the newest one,
and Delta refuses it if another commit has changed the same domain meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakefeed.clients.s3 import configured_keys, require_bucket
from lakefeed.clients.spark.jvm import cause_of, java
from lakefeed.config.addresses import local_folder
from lakefeed.errors import AccessDenied, CheckpointMismatch, ConfigError, SchemaIncompatible
from lakefeed.lazy import DataFrame, SparkSession, StructType, sf, t
from lakefeed.sinks.base import Batch
from lakefeed.sinks.definition import SinkContext, TableChange
from lakefeed_delta.log import TableLog, storage_options
from lakefeed_delta.settings import DeltaSinkConfig
from lakefeed_delta.store import require_conditional_writes

ATTEMPTS = 5
_WIDER = (("byte", "short", "integer", "long"), ("float", "double"))
_OUTDATED = "were changed while the batch"


@dataclass
class StagedBatch:
    """Files of a batch that no version of the table has yet."""

    rows: DataFrame | None
    files: Any
    """The Java object ``Staged``."""

    @property
    def count(self) -> int:
        """Return the number of rows in the files."""
        rows = int(self.files.rows())
        if rows < 0:
            what, hint = (
                "Delta's statistics are off, so the rows are not counted",
                "remove spark.databricks.delta.stats",
            )
            raise ConfigError(what, where="the files of a batch", hint=hint)
        return rows

    def discard(self) -> None:
        """Delete the files of a batch that was never committed."""
        self.files.discard()


class DeltaStore:
    """The rows and the ledger of one feed."""

    def __init__(self, settings: DeltaSinkConfig, feed: str, *, context: SinkContext) -> None:
        self._settings, self._feed, self._context = settings, feed, context
        self.spark: SparkSession | None = None
        self._table: Any = None
        self._columns: StructType | None = None
        self._newest: str | None = None

    def begin(self, columns: StructType) -> None:
        """Create the table, or add the columns that it lacks."""
        rows = self._fitting(columns)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._translated():
                    self._prepare(rows)
            except _Conflict:
                # Another driver has created or changed the table.
                if attempt == ATTEMPTS:
                    raise
                continue
            break
        self._columns = _parsed(self.table.columns())

    def _prepare(self, rows: StructType) -> None:
        settings = self._settings
        if self.table.columns() is not None:
            self._require_same_partitions()
            if not self._context.evolves:
                self._require_columns(rows)
        self.table.prepare(
            rows.json(),
            settings.partition_by,
            settings.properties,
            settings.comment,
            self._context.evolves,
        )

    def _require_same_partitions(self) -> None:
        have, want = list(self.table.partitions()), self._settings.partition_by
        if want and have != want:
            what = f"the table is partitioned by {', '.join(have) or 'no column'}, not by {', '.join(want)}"
            hint = f"write partition_by: [{', '.join(have)}], or name another path: Delta cannot change it"
            raise ConfigError(what, where=self._settings.where, hint=hint)

    def _require_columns(self, rows: StructType) -> None:
        have = {field.name.lower() for field in _parsed(self.table.columns()).fields}
        if missing := [name for name in rows.names if name.lower() not in have]:
            what = f"the table does not have the column {missing[0]}, and schema.on_change forbids to add it"
            raise SchemaIncompatible(
                what, where=self._settings.where, hint="add the column, or write on_change: evolve"
            )

    def _fitting(self, rows: StructType) -> StructType:
        """Return the rows' columns. Where the table's type is wider, the column gets the table's type."""
        text = self.table.columns()
        have = {} if text is None else {field.name.lower(): field.dataType for field in _parsed(text).fields}
        fields = []
        for field in rows.fields:
            stored = have.get(field.name.lower())
            kind = field.dataType
            if stored is not None and _is_wider(stored.typeName(), kind.typeName()):
                kind = stored
            fields.append(t.StructField(field.name, kind, True, field.metadata))
        return t.StructType(fields)

    def stage(self, rows: DataFrame) -> StagedBatch:
        """Write a batch's rows into files that no reader of the table sees."""
        fitting = {field.name: field.dataType for field in self._fitting(rows.schema).fields}
        cast = {
            field.name: sf.col(f"`{field.name.replace('`', '``')}`").cast(fitting[field.name])
            for field in rows.schema.fields
            if field.dataType != fitting[field.name]
        }
        fitted = rows.withColumns(cast) if cast else rows
        with self._translated():
            return StagedBatch(rows, self.table.stage(fitted._jdf))

    def write(self, rows: DataFrame | StagedBatch | None, batch: Batch) -> None:
        """Commit the rows and the entry as one version of the table."""
        for attempt in range(1, ATTEMPTS + 1):
            staged = self._staged(rows)
            try:
                with self._translated():
                    text = f"lakefeed: entry {batch.number} of feed {batch.feed}"
                    staged.files.commit(batch.feed, batch.number, batch.entry, text)
            except _Conflict as conflict:
                self._newest = None
                if attempt == ATTEMPTS or not conflict.passes:
                    raise
                # Another commit has changed the table's columns or properties: write the rows once more.
                rows = staged.rows
            except BaseException:
                self._newest = None
                raise
            else:
                self._newest = batch.entry
                return

    def _staged(self, rows: DataFrame | StagedBatch | None) -> StagedBatch:
        if isinstance(rows, StagedBatch):
            return rows
        return StagedBatch(None, self.table.nothing()) if rows is None else self.stage(rows)

    def entries(self) -> Iterator[str]:
        """Yield the feed's entries, newest first, as far back as the table's log goes."""
        newest = None
        if self.spark is not None:
            # In a run the JVM knows the log's newest version, and this driver its own last entry.
            if self._newest is None:
                # Spark leaves out the lines of a version that are no JSON.
                self._log().require_whole()
                with self._translated():
                    newest = self.table.entry()
                if newest is None:
                    return
            else:
                newest = self._newest
            yield newest
        for configuration in self._log().entries(f"lakefeed.{self._feed}"):
            entry = json.dumps(json.loads(configuration)["entry"], separators=(",", ":"))
            if newest is None or json.loads(entry)["number"] < json.loads(newest)["number"]:
                yield entry

    def read(self, columns: Sequence[str] | None) -> Any:
        """Read the newest version's rows as an Arrow record batch reader."""
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(self._uri, storage_options=self._options)
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns) if columns else "*"
        found = QueryBuilder().register("feed", table).execute(f"SELECT {names} FROM feed")  # noqa: S608
        reader = pa.RecordBatchReader.from_stream(found)
        # Most of pyarrow's functions do not take views.
        views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
        return reader.cast(pa.schema([field.with_type(views.get(field.type, field.type)) for field in reader.schema]))

    def check(self) -> None:
        """Ask the store whether a run could begin."""
        settings = self._settings
        if settings.is_local:
            folder = local_folder(settings.path)
            while not folder.exists():
                folder = folder.parent
            if not folder.is_dir():
                what = "the table's path goes through a file"
                raise AccessDenied(what, where=str(folder), hint="correct sink.delta.path")
        else:
            s3, bucket, key = self._context.connections.s3, *settings.path.removeprefix("s3a://").split("/", 1)
            keys = configured_keys(s3)
            require_bucket(bucket, s3=s3, keys=keys)
            require_conditional_writes(bucket, f"{key}/_lakefeed-probe", s3=s3, keys=keys)
        next(iter(self._log().entries(f"lakefeed.{self._feed}")), None)

    def change(self, rows: StructType) -> TableChange:
        """Return what ``begin`` would change for rows of these columns."""
        settings, name = self._settings, f"delta.`{self._settings.path}`"
        text = self.table.columns()
        with self._translated():
            after = _parsed(self.table.merged(self._fitting(rows).json()))
        if text is None:
            statement = f"CREATE TABLE {name} ({_ddl(after.fields)}) USING delta"
            if settings.partition_by:
                statement += f" PARTITIONED BY ({', '.join(settings.partition_by)})"
            properties = {**settings.properties, "delta.feature.domainMetadata": "supported"}
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            return TableChange(table=settings.path, is_new=True, statements=(f"{statement} TBLPROPERTIES ({listed})",))
        self._require_same_partitions()
        if not self._context.evolves:
            self._require_columns(rows)
        before = {field.name: field for field in _parsed(text).fields}
        statements, notes = [], []
        if self.table.lacksFeature():
            statements.append(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.feature.domainMetadata' = 'supported')")
            notes.append("writers must know the table feature domainMetadata from then on; readers need not")
        if added := [field for field in after.fields if field.name not in before]:
            statements.append(f"ALTER TABLE {name} ADD COLUMNS ({_ddl(added)})")
        for field in after.fields:
            if field.name in before and before[field.name].dataType != field.dataType:
                statements.append(f"ALTER TABLE {name} ALTER COLUMN {_ddl([field]).replace(' ', ' TYPE ', 1)}")
        return TableChange(
            table=settings.path,
            is_new=False,
            statements=tuple(statements if self._context.evolves else statements[:1]),
            notes=tuple(notes),
        )

    @property
    def table(self) -> Any:
        """The Java object ``DeltaFeed``."""
        if self._table is None:
            session: Any = self._session
            self._table = java(session).delta.DeltaFeed(session._jsparkSession, self._settings.path, self._feed)
            if self._table.logStore() != "io.lakefeed.delta.ExclusiveLogStore":
                what = (
                    f"the session writes Delta's logs with {self._table.logStore()}, which lets two drivers overwrite"
                )
                hint = "start the session for this pipeline, or with the settings that the page lists"
                raise ConfigError(what, where=self._settings.where, hint=hint)
        return self._table

    @property
    def _session(self) -> SparkSession:
        if self.spark is None:
            from pyspark.sql import SparkSession as Sessions

            return Sessions.builder.getOrCreate()
        return self.spark

    @property
    def _uri(self) -> str:
        path = self._settings.path
        return str(local_folder(path)) if self._settings.is_local else path.replace("s3a://", "s3://", 1)

    @property
    def _options(self) -> dict[str, str]:
        return {} if self._settings.is_local else storage_options(self._context.connections)

    def _log(self) -> TableLog:
        return TableLog(self._uri, self._context.connections)

    def _translated(self) -> _Translation:
        return _Translation(self._settings)


class _Conflict(CheckpointMismatch):
    """Another commit came first. ``passes`` is True if a new attempt with the changed table may succeed."""

    passes = False


@dataclass
class _Translation:
    """Translate known errors of the JVM into errors of lakefeed; other errors pass unchanged."""

    settings: DeltaSinkConfig

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        raised = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        if raised is None:
            return
        where = self.settings.where
        name, text = str(raised.getClass().getSimpleName()), f"{error} {cause_of(error)}"
        own = cause_of(error).partition("lakefeed: ")[2]
        if _OUTDATED in own or name in ("MetadataChangedException", "ProtocolChangedException"):
            what = own or "the table's columns or properties were changed by another commit"
            conflict = _Conflict(what, where=where, hint="start the feed again")
            conflict.passes = True
            raise conflict from None
        if own.startswith("version "):
            before = int(own.split()[1]) - 1
            hint = f"run RESTORE TABLE delta.`{self.settings.path}` TO VERSION AS OF {before}; or begin with a new path"
            raise CheckpointMismatch(own, where=where, hint=hint) from None
        if own or name.startswith("Concurrent"):
            what = own or "another commit has changed the feed's ledger"
            raise _Conflict(what, where=where, hint="start the feed again") from None
        if "DELTA_FAILED_TO_MERGE_FIELDS" in text or "DELTA_MERGE_INCOMPATIBLE" in text:
            hint = "cast the column in transform.sql, or set delta.enableTypeWidening where the new type is wider"
            raise SchemaIncompatible(str(error).splitlines()[0][:300], where=where, hint=hint) from None


def _is_wider(stored: str, given: str) -> bool:
    """Return whether the stored type holds every value of the given type."""
    return any(stored in order and given in order and order.index(stored) > order.index(given) for order in _WIDER)


def _parsed(columns: str) -> StructType:
    return t.StructType.fromJson(json.loads(columns))


def _ddl(fields: Iterable[Any]) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in fields)
