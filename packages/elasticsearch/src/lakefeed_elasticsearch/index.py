"""Elasticsearch sink: write a batch's rows as documents of an index, and its offset ranges into a ledger index.

Guarantee: exactly-once in effect. The row gives a document its id, so a batch that is written twice leaves the same
documents. After the server has acknowledged all documents, the driver writes the ledger by compare-and-set. The driver
skips a batch that the ledger already has, and refuses a batch that does not begin at the end of the ledger's last
batch. The ledger's number is the version of the documents, so a replaced driver cannot overwrite newer documents. The
server has no transactions, so a reader may see some documents of a batch before the other documents of this batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from lakefeed.clients.retry import retry_until
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import ONE_PLACE, TAKEN_OVER
from lakefeed.config.keyed import POSITION_COLUMNS, keyed
from lakefeed.errors import AccessDenied, CheckpointMismatch, ConfigError, DriverReplaced, LakefeedError, Unreachable
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.outcomes import check_outcomes
from lakefeed.offsets.ranges import has_state
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.changes import (
    counted_groups,
    deleting,
    latest_per_key,
    partitions_for,
    shuffle_by_key,
    summarize_changes,
)
from lakefeed.sinks.definition import (
    Changes,
    Check,
    Claim,
    Commit,
    Entry,
    Problem,
    SinkContext,
    SinkDefinition,
    SinkState,
    SnapshotProperties,
    StoredSchema,
    StoredState,
    TableChange,
)
from lakefeed_elasticsearch.layout import IndexDocuments, IndexLayout
from lakefeed_elasticsearch.ledger import ElasticsearchLedger
from lakefeed_elasticsearch.server import OTHER_SERVER, REST_API, Server, authority, authorization, path_of
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig

FAILURE = re.compile(r"lakefeed bulk \[(\w+)\]: (.*)")
"""Matches the error of the JVM module for documents that were not written (io.lakefeed.elasticsearch.BulkFailure)."""
OLDEST = 7
"""Elasticsearch before this version has document types, and no compare-and-set by sequence number."""


class ElasticsearchIndex(BaseSink):
    """One feed's index on a search server."""

    ledger: ElasticsearchLedger

    def __init__(self, spark: SparkSession, sink: ElasticsearchSinkConfig, context: SinkContext) -> None:
        self._spark = spark
        self._sink = sink
        self._context = context
        self._followed = False
        self._documents = IndexDocuments(self._sink, groups=self._context.groups)
        self._server = Server(self._sink)
        self._layout = IndexLayout(self._server, self._sink)
        self.ledger = ElasticsearchLedger(self._server, self._sink, self._context.feed)

    def location(self) -> str:
        return self.ledger.where

    def stored_schema(self) -> StoredSchema | None:
        standing = self.ledger.standing() if self._layout.describe() is not None else None
        return None if standing is None or standing.reader is None else StoredSchema.of_json(standing.reader)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        self._documents.require(rows)
        self.ledger.ensure()
        if self._layout.describe() is None:
            if self._followed:
                hint = "restore the index with lakefeed_feeds; or start over with another checkpoint location"
                raise CheckpointMismatch("the index was removed while the feed runs", where=self._sink.where, hint=hint)
            # The run's start has decided that a feed whose index is missing starts over: clear the feed's ledger.
            self.ledger.note(commit=None, reader=None, keyed=None, topics=None)
        self._require_same_keys()
        for method, path, document in self._requests(rows):
            self._layout.change(method, path, document)
        self.ledger.note(keyed=keyed(self._sink), reader=stored.to_json() if stored else None)
        self._followed = True

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        self._documents.require(rows)
        is_new = self._layout.describe() is None
        if not is_new:
            self._require_same_keys()
        text = tuple(f"{method} {path} {json.dumps(document)}" for method, path, document in self._requests(rows))
        return (TableChange(table=self._sink.index, is_new=is_new, statements=text),)

    def _requests(self, rows: StructType) -> list[tuple[str, str, dict[str, Any]]]:
        return self._layout.changes(self._documents.columns(rows), evolves=self._context.evolves)

    def _require_same_keys(self) -> None:
        standing = self.ledger.standing()
        if standing is not None and standing.keyed not in (None, keyed(self._sink)):
            raise ConfigError(
                f"the feed wrote its documents with the keys '{standing.keyed}', and the pipeline now has "
                f"'{keyed(self._sink)}', which would give the documents other ids",
                where=self._sink.where,
                hint="name a new index and another checkpoint location",
            )

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Compute and check the rows of one micro-batch; write their documents, and then the ledger's document."""
        if not isinstance(commit, Commit):
            what = "the sink elasticsearch writes only the batches of a run, no backfills or replays"
            raise ConfigError(what, where=self._sink.where, hint="write with lakefeed run, or Pipeline.run()")
        self._documents.require_records(rows, stateful=has_state(commit.ranges))
        if self._documents.has_changes:
            changes = deleting(rows)
            partitions = partitions_for(changes, commit)
            stored = shuffle_by_key(changes, keys=self._documents.keys(rows), partitions=partitions)
        else:
            stored = rows.persist()
        try:
            counted = replace(commit, rows=self._count_rows(stored, commit_id))
            counts = check_outcomes(self._spark, commit_id)
            return retry_until(
                lambda: self._write_batch(stored, counted, commit_id=commit_id, counts=counts),
                is_transient=lambda error: isinstance(error, Unreachable),
                seconds=self._context.patience,
            )
        finally:
            stored.unpersist()

    def _count_rows(self, stored: DataFrame, commit_id: str) -> int:
        """Compute and count the rows; refuse unsuitable rows before any document is written."""
        keys = self._documents.keys(stored)
        if self._documents.has_changes:
            changes = summarize_changes(stored, keys=keys, order_by=())
            # Check the outcomes first: they may demand another schema, and then the rows have to be computed again.
            check_outcomes(self._spark, commit_id)
            changes.check(keys=keys, table=self._sink.index, orders=False)
            return changes.upserts.keys
        count, without_record = self._documents.count_rows(stored)
        check_outcomes(self._spark, commit_id)
        if without_record:
            raise ConfigError(
                f"{without_record:,} rows of the batch have no {' or '.join(POSITION_COLUMNS)}, which give a document "
                "its id",
                where=self._sink.where,
                hint="select these columns unchanged in transform.sql; or set mode: upsert with keys",
            )
        if self._sink.mode == "upsert":
            return counted_groups(stored, keys=keys, where=self._sink.where, kind="elasticsearch")
        return count

    def _write_batch(self, stored: DataFrame, commit: Commit, *, commit_id: str, counts: str) -> int:
        while (standing := self.ledger.begin(commit, commit_id=commit_id)) is not None:
            if self._sink.mode == "append":
                self.ledger.require_same_topics(standing, commit)
            self._layout.require()
            if commit.rows:
                has_changes, keys = self._documents.has_changes, self._documents.keys(stored)
                rows = latest_per_key(stored, keys=keys, order_by=()) if has_changes else stored
                self._write(self._documents.of(rows), fence=commit.fence or "", version=standing.number)
            if self.ledger.write(standing, commit, commit_id=commit_id, counts=counts):
                break
        return commit.rows

    def _write(self, documents: DataFrame, *, fence: str, version: int) -> None:
        java, sink, secret = jvm.java(self._spark).elasticsearch, self._sink, None
        if (login := authorization(sink)) is not None:
            secret = f"{sink.username or 'api_key'}@{sink.urls[0]}"
            jvm.put_secret(self._spark, secret, SecretStr(login))
        limits = (sink.bulk_documents, sink.bulk_bytes, int(self._context.patience))
        target = java.BulkTarget(f"{path_of(sink.index)}/_bulk", self.ledger.path, fence, version, *limits)
        try:
            java.Cluster.of(list(sink.urls), secret, authority(sink)).write(documents._jdf, target)
        except Exception as error:
            if (failure := FAILURE.search(str(error))) is None:
                raise
            raise self._bulk_error(failure[1], failure[2].strip(), fence=fence) from None

    def _bulk_error(self, kind: str, text: str, *, fence: str) -> Exception:
        where = self._sink.where
        if kind == "AWAY":
            hint = "check that the server runs and has room for the documents"
            return Unreachable(f"the search server does not accept the documents now: {text}", where=where, hint=hint)
        if kind == "DENIED":
            hint = "give the login the right to write the index; remove index.blocks if the index is read-only"
            return AccessDenied(f"the search server forbids the login to write: {text}", where=where, hint=hint)
        if kind == "REFUSED":
            return ConfigError(
                f"the search server refuses a document: {text}",
                where=where,
                hint="change the value in transform.sql, or the mapping, which requires a new index; "
                "expect: {…: {rule: …, on_violation: dead_letter}} makes such records dead letters",
            )
        standing = self.ledger.standing()
        if standing is None or standing.fence != fence:
            return DriverReplaced(TAKEN_OVER, where=f"{where}: this driver's fence {fence}", hint=ONE_PLACE)
        return CheckpointMismatch(
            f"a document of the index has a higher version than the ledger: {text}",
            where=where,
            hint="another client writes these documents, or lakefeed_feeds was restored without the index: "
            "give the feed its own index",
        )


class ElasticsearchDefinition(SinkDefinition[ElasticsearchSinkConfig]):
    """Opens and checks the index, and reads its ledger."""

    def open(self, spark: SparkSession, claim: Claim) -> ElasticsearchIndex:
        return ElasticsearchIndex(spark, self.settings, self.context)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> ElasticsearchIndex:
        return ElasticsearchIndex(spark, self.settings, self.context)

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        documents = IndexDocuments(self.settings, groups=self.context.groups)
        try:
            documents.require(rows.schema)
            documents.require_records(rows, stateful=stateful)
        except ConfigError as error:
            yield Problem.of(error, key=self.context.place)

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        return [lambda: list(problems(self.settings, key=self.context.place))]

    def state(self) -> SinkState:
        ledger = ElasticsearchLedger(Server(self.settings), self.settings, self.context.feed)
        return StoredState(keeps_ledger=True, position=ledger.position)


def problems(sink: ElasticsearchSinkConfig, *, key: str) -> Iterator[Problem]:
    """Yield all problems that would stop a run, without Spark; ``key`` is the block's path in the pipeline file."""
    server = Server(sink)
    try:
        require_version(server, where=", ".join(sink.urls))
        IndexLayout(server, sink).describe()
    except AccessDenied as error:
        yield Problem.of(error, key=f"{key}.{'api_key' if sink.api_key is not None else 'username'}")
    except Unreachable as error:
        yield Problem.of(error, key=f"{key}.url")
    except LakefeedError as error:
        yield Problem.of(error, key=f"{key}.{'index' if sink.index in (error.where or '') else 'url'}")


def require_version(server: Server, *, where: str) -> None:
    """Refuse a server that is neither Elasticsearch nor OpenSearch, and an Elasticsearch older than ``OLDEST``."""
    version = server.ask("GET", "/").document.get("version")
    number = str(version.get("number", "")) if isinstance(version, dict) else ""
    if not number[:1].isdigit():
        raise ConfigError(OTHER_SERVER, where=where, hint=REST_API)
    is_opensearch = isinstance(version, dict) and version.get("distribution") == "opensearch"
    if not is_opensearch and int(number.partition(".")[0]) < OLDEST:
        what = f"the server is Elasticsearch {number}, and the sink needs {OLDEST} or newer"
        raise ConfigError(what, where=where, hint="upgrade the server, or name another server")
