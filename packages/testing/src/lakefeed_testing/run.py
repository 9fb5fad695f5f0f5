"""Run cases with the feed's own decoder, transform, batch writer and Iceberg sink, on a local Spark.

Records come from files, and rows go to tables of a SQLite catalog, all in a temporary folder; the registry runs in this
process. A batch is written as in the feed's ``foreachBatch``. If the transform has state, a streaming query reads the
batches in order, and ends like a run with ``--once``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from lakefeed import session
from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.clients.spark import statements
from lakefeed.clients.spark.errors import translating
from lakefeed.clients.spark.session import log_path
from lakefeed.config.checks import function_modules
from lakefeed.config.connections import Catalog, Connections
from lakefeed.config.decoding import Encoded
from lakefeed.config.models import PipelineConfig
from lakefeed.config.topic_tables import config_of
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.feed.batch_reader import PlannedRestart
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.feed.run import MicroBatches, watch
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.outcomes import ZERO
from lakefeed.messages.printable import ReadableResult, counted
from lakefeed.offsets.ranges import with_batch
from lakefeed.records.decode.registry import SchemaText
from lakefeed.records.sources import query_id
from lakefeed_encode.encode import json_of
from lakefeed_testing.compare import Difference, FoundDeadLetter, Outcome, differences, read_row
from lakefeed_testing.encode import CaseEncoder, GivenValue
from lakefeed_testing.feed import CaseFeed, CasePlaces, PlacedRecord, RecordFiles, config_of_case, place
from lakefeed_testing.load import CaseFile
from lakefeed_testing.schemas import CaseRegistry, CaseSchemas
from lakefeed_testing.settings import Case, CaseRecord

LOCAL_FILES = "org.apache.iceberg.hadoop.HadoopFileIO"


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """The outcome of one case, and its differences from the expected outcome; without differences, the case passes."""

    case: str
    where: str
    records: int
    outcome: Outcome
    differences: tuple[Difference, ...]
    seconds: float

    @property
    def has_passed(self) -> bool:
        return not self.differences

    def as_dict(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "where": self.where,
            "passed": self.has_passed,
            "records": self.records,
            "rows": len(self.outcome.rows),
            "dead_letters": [asdict(each) for each in self.outcome.dead_letters],
            "skipped": self.outcome.skipped,
            "error": self.outcome.error,
            "notes": list(self.outcome.notes),
            "differences": [asdict(each) for each in self.differences],
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class TestReport(ReadableResult):
    """The results of all cases, in the order of their files; ``seconds`` includes the start of Spark."""

    __test__ = False  # Otherwise pytest would collect this class as a test, because of its name.

    pipeline: str
    results: tuple[CaseResult, ...]
    seconds: float

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        return tuple(each for each in self.results if not each.has_passed)

    @property
    def headline(self) -> str:
        count, failed = counted(len(self.results), "case"), len(self.failed)
        return f"{self.pipeline}: {count} in {self.seconds:.1f} s, {f'{failed} failed' if failed else 'all pass'}"

    @property
    def figures(self) -> Mapping[str, str]:
        return {
            each.case: "; ".join(difference.what for difference in each.differences) or "passes"
            for each in self.results
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        return {
            "pipeline": self.pipeline,
            "passed": len(self.results) - len(self.failed),
            "failed": len(self.failed),
            "seconds": self.seconds,
            "cases": [each.as_dict() for each in self.results],
        }


def run_files(pipeline: Path, files: Sequence[CaseFile], *, names: Sequence[str] = ()) -> TestReport:
    """Run the cases of these files, or only the cases with these names; refuse a name that no case has."""
    began = time.monotonic()
    known = [name for file in files for name in file.cases]
    if unknown := next((name for name in names if name not in known), None):
        raise ConfigError(
            f"there is no case '{unknown}'", where=str(pipeline), hint=f"the cases are {', '.join(known)}"
        )
    results = []
    with CaseRunner(files[0].config, folder=pipeline.absolute().parent) as runner:
        for file in files:
            for name, case in file.cases.items():
                if not names or name in names:
                    results.append(runner.check(file, name, case))
    return TestReport(pipeline=str(pipeline), results=tuple(results), seconds=round(time.monotonic() - began, 3))


class CaseRunner:
    """A context manager that runs cases of one pipeline, each with its own tables.

    It uses the running Spark session, or else starts one with two threads on this machine.
    """

    def __init__(self, config: PipelineConfig, *, folder: Path) -> None:
        if config.source.numbered is None:
            what = f"cases are records of topics or streams, and the pipeline reads {config.source.kind}"
            hint = "test the transform's functions and SQL with pytest and a Spark session instead"
            raise ConfigError(what, where=f"source.{config.source.kind}", hint=hint)
        self._config = config
        self._folder = folder
        self._stack = ExitStack()
        # Spark opens a catalog of a name only once, so choose a unique name.
        self._catalog = f"cases_{uuid.uuid4().hex[:8]}"
        self._cases = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._place = Path(stack.enter_context(TemporaryDirectory(prefix="lakefeed-test-")))
            self._registry = stack.enter_context(CaseRegistry.running())
            make_catalog(self._place / "catalog.db")
            self._connections = Connections(
                catalogs={
                    self._catalog: Catalog(
                        uri=f"jdbc:sqlite:{self._place}/catalog.db",
                        warehouse=f"file://{self._place}/warehouse",
                        properties={"io-impl": LOCAL_FILES},
                    )
                }
            )
            self._spark = session(
                "lakefeed-test",
                connections=self._connections,
                master="local[2]",
                conf={
                    "spark.sql.shuffle.partitions": "2",
                    **{name: str(value) for name, value in self._config.spark.items()},
                },
                log_file=log_path("test"),
                folder=self._folder,
                modules=function_modules(self._config),
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def check(self, file: CaseFile, name: str, case: Case) -> CaseResult:
        """Run one case, and compare its outcome."""
        began = time.monotonic()
        outcome = self.run(file, name, case)
        return CaseResult(
            case=name,
            where=file.where(name),
            records=len(case.records),
            outcome=outcome,
            differences=tuple(differences(case, outcome)),
            seconds=round(time.monotonic() - began, 3),
        )

    def run(self, file: CaseFile, name: str, case: Case) -> Outcome:
        """Return the outcome of one case's records; raise ConfigError if a record is wrong."""
        self._cases += 1
        config = file.config
        schemas = CaseSchemas.of(file.tests, case, config)
        registry = self._registry.serve(schemas.versions())
        records = self._records(file, name, case, schemas)
        outcomes = []
        for number, part in enumerate(_parts(config, records)):
            places = CasePlaces(
                namespace=f"{self._catalog}.case_{self._cases}_{number}",
                folder=self._place / f"case_{self._cases}_{number}",
                registry=registry,
            )
            topics = part.source.kafka.topics if config.has_many_tables and part.source.kafka is not None else None
            own = [record for record in records if topics is None or record.topic in topics]
            feed = CaseFeed(
                config=config_of_case(part, places, file.tests.tables),
                connections=self._connections,
                view=config.name,
                folder=self._folder,
                records=RecordFiles(places.folder / "records", own),
            )
            outcomes.append(self._run_feed(feed, places))
        return _joined(outcomes)

    def _records(self, file: CaseFile, name: str, case: Case, schemas: CaseSchemas) -> list[PlacedRecord]:
        decode, numbered = file.config.decode, file.config.source.numbered
        encode = partial(self._encoded, schemas.texts, records=case.records, where=partial(file.where, name, "records"))
        values = encode(decode, lambda record: (record.value, record.schema_id), default_id=schemas.first)
        keys: dict[int, bytes] = {}
        if decode.key is not None:
            keys = encode(decode.key, lambda record: (record.key, record.key_schema_id), default_id=schemas.newest_key)
        topics = numbered.topics if numbered is not None else None
        return place(
            case.records,
            topic=topics[0] if topics else None,
            values=[_value(record, values.get(number)) for number, record in enumerate(case.records)],
            keys=[_key(record, keys.get(number)) for number, record in enumerate(case.records)],
            where=file.where(name),
        )

    def _encoded(
        self,
        texts: Mapping[int, SchemaText],
        block: Encoded,
        part: Callable[[CaseRecord], tuple[Any, int | None]],
        *,
        records: Sequence[CaseRecord],
        where: Callable[[int], str],
        default_id: int | None,
    ) -> dict[int, bytes]:
        """Return the encoded values or keys by the record's number; without a schema id, the default schema is used."""
        given = {
            number: GivenValue(value=value, where=where(number), schema_id=default_id if own is None else own)
            for number, record in enumerate(records)
            for value, own in [part(record)]
            if value is not None
        }
        encoder = CaseEncoder(self._spark, block, texts)
        return dict(zip(given, encoder.encode(list(given.values())), strict=True))

    def _run_feed(self, feed: CaseFeed, places: CasePlaces) -> Outcome:
        """Return the outcome of a feed over all its batches, including an error that stops the feed."""
        spark, notes, results, error = self._spark, list[str](), list[BatchResult](), None
        statements.run(spark, f"CREATE NAMESPACE IF NOT EXISTS {places.namespace}")
        try:
            with translating():
                results.extend(_batches(spark, feed, notes))
        except LakefeedError as failed:
            error = f"{failed.what} ({failed.where})" if failed.where else failed.what
        rows, types = self._rows(places.table)
        return Outcome(
            rows=tuple(rows),
            types=types,
            dead_letters=tuple(self._dead_letters(places.dead_letters)),
            skipped=sum((result.counts for result in results), ZERO).skipped,
            error=error,
            notes=(*notes, *(note for result in results for note in result.notes)),
        )

    def _rows(self, table: str) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
        """Return the rows in the order of their commits, which a scan does not preserve, and the columns' types."""
        if not self._spark.catalog.tableExists(table):
            return [], {}
        found = self._spark.table(table)
        types = {field["name"]: field["type"] for field in found.schema.jsonValue()["fields"]}
        entries = self._spark.table(f"{table}.entries").select("data_file.file_path", "sequence_number").collect()
        commits = {entry["file_path"]: entry["sequence_number"] for entry in entries}
        rows = found.select(json_of(sf.struct("*")).alias("row"), "_file", "_pos").collect()
        rows.sort(key=lambda row: (commits[row["_file"]], row["_file"], row["_pos"]))
        return [read_row(row["row"]) for row in rows], types

    def _dead_letters(self, table: str) -> Iterator[FoundDeadLetter]:
        if not self._spark.catalog.tableExists(table):
            return
        letters = self._spark.table(table).orderBy("topic", "partition", "offset")
        for letter in letters.select("topic", "partition", "offset", "reason", "schema_id").collect():
            yield FoundDeadLetter(**letter.asDict())


def _batches(spark: SparkSession, feed: CaseFeed, notes: list[str]) -> Iterator[BatchResult]:
    """Write the batches of a feed in the steps of ``lakefeed run``, and yield their results."""
    claim = feed.claim(spark)
    stateful = feed.plan(spark).stateful
    sink = feed.sink(spark, claim, note=notes.append)
    check = feed.query_check(claim, is_new_query=True) if stateful else None
    records = feed.source.read_stream(spark) if stateful else feed.source.read_case(spark, 0)
    writer = feed.begin_writer(spark, sink, records, check_query=check)
    sink.begin(None)
    try:
        if stateful:
            yield from _stream(spark, feed, writer, notes)
            return
        for batch_id in range(len(feed.records.batches)):
            yield writer.write(feed.source.read_case(spark, batch_id), feed.records.ranges(batch_id), batch_id)
    finally:
        writer.reader.close()


def _stream(spark: SparkSession, feed: CaseFeed, writer: BatchWriter, notes: list[str]) -> Iterable[BatchResult]:
    """Run a streaming query to its end; start another one when a new writer's schema requires it."""
    config, batches = feed.config, MicroBatches(threading.Event())
    results: list[BatchResult] = []

    def write(batch: DataFrame, batch_id: int) -> BatchResult:
        query = query_id(spark, config.name)
        ranges = with_batch(feed.records.ranges(batch_id), batch_id=batch_id, query_id=query)
        results.append(writer.write(batch, ranges, batch_id))
        return results[-1]

    while True:
        frame = writer.reader.query_frame(feed.source.read_stream(spark))
        with feed.plan(spark).settings(spark):
            query = batches.start(
                frame,
                write,
                name=config.name,
                checkpoint=config.checkpoint,
                trigger=config.trigger,
                output_mode=config.output_mode,
            )
        try:
            watch(query, batches, on_batch=lambda progress: None)
            return results
        except PlannedRestart:
            batches.failure = None
            notes.extend(writer.rows.notes())


def _parts(config: PipelineConfig, records: Sequence[PlacedRecord]) -> list[PipelineConfig]:
    topics = sorted({record.topic for record in records})
    if unread := next((topic for topic in topics if not _reads(config, topic)), None):
        what = f"pipeline '{config.name}' does not read the topic {unread}"
        raise ConfigError(what, where="tests.cases", hint="correct the topic of the records")
    return [config_of(config, topic) for topic in topics] if config.has_many_tables else [config]


def _reads(config: PipelineConfig, topic: str) -> bool:
    source = config.source
    return source.kafka.reads(topic) if source.kafka is not None else topic in (source.numbered.topics or ())  # type: ignore[union-attr]


def _value(record: CaseRecord, encoded: bytes | None) -> bytes | None:
    if record.hex is not None:
        return bytes.fromhex(record.hex)
    return record.text.encode() if record.text is not None else encoded


def _key(record: CaseRecord, encoded: bytes | None) -> bytes | None:
    if record.key_hex is not None:
        return bytes.fromhex(record.key_hex)
    return str(record.key).encode() if encoded is None and record.key is not None else encoded


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcomes of the topics' tables, combined into one."""
    first, *others = outcomes
    for other in others:
        first = replace(
            first,
            rows=(*first.rows, *other.rows),
            types={**first.types, **other.types},
            dead_letters=(*first.dead_letters, *other.dead_letters),
            skipped=first.skipped + other.skipped,
            error=first.error or other.error,
            notes=(*first.notes, *other.notes),
        )
    return first
