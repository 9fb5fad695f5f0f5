"""Elasticsearch sink: a micro-batch's rows as documents of an index, and their offset ranges in a ledger index.

Guarantee: exactly-once in effect. A document's id derives from its row, so a batch that is written twice leaves the
same documents. The ledger is written by compare-and-set after the whole batch is acknowledged. A batch in the ledger is
not written again; a batch that does not begin at the ledger's end is refused. The documents' version is the ledger's
number, so a replaced driver cannot overwrite newer documents. A reader may see some documents of a batch earlier than
others, because the server has no transactions.
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
from lakefeed.ledger.stateful_batches import has_state
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
from lakefeed_elasticsearch.documents import IndexDocuments
from lakefeed_elasticsearch.layout import IndexLayout
from lakefeed_elasticsearch.ledger import ElasticsearchLedger
from lakefeed_elasticsearch.server import Server, authority, authorization, path_of
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig

# The JVM module's error for documents that were not written (io.lakefeed.elasticsearch.BulkFailure).
FAILURE = re.compile(r"lakefeed bulk \[(\w+)\]: (.*)")
OLDEST = 7
"""The least major version; Elasticsearch before it has document types, and no compare-and-set by sequence number."""


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
                raise CheckpointMismatch("the index was removed while the feed runs", where=self._sink.where)
            # At the start of the run, the check decided that the feed starts over.
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
                f"the documents of this feed were made with '{standing.keyed}', the pipeline says "
                f"'{keyed(self._sink)}': they would have other ids",
                where=self._sink.where,
                hint="land the feed in a new index, under another checkpoint location",
            )

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Compute and check the rows of one micro-batch, write their documents, and then the ledger."""
        if not isinstance(commit, Commit):
            raise ConfigError("a feed into a search server takes batches only", where=self._sink.where)
        self._documents.require_records(rows, stateful=has_state(commit.ranges))
        if self._documents.has_changes:
            changes = deleting(rows)
            partitions = partitions_for(changes, commit)
            kept = shuffle_by_key(changes, keys=self._documents.keys(rows), partitions=partitions)
        else:
            kept = rows.persist()
        try:
            counted = replace(commit, rows=self._count_rows(kept, commit_id))
            counts = check_outcomes(self._spark, commit_id)
            return retry_until(
                lambda: self._write_batch(kept, counted, commit_id=commit_id, counts=counts),
                is_transient=lambda error: isinstance(error, Unreachable),
                seconds=self._context.patience,
            )
        finally:
            kept.unpersist()

    def _count_rows(self, kept: DataFrame, commit_id: str) -> int:
        """Compute and count the rows; refuse rows that must not land, before any document is written."""
        keys = self._documents.keys(kept)
        if self._documents.has_changes:
            changes = summarize_changes(kept, keys=keys, order_by=())
            # Checked before mistakes in the rows, because their schema may still have to be merged.
            check_outcomes(self._spark, commit_id)
            changes.check(keys=keys, table=self._sink.index, orders=False)
            return changes.upserts.keys
        count, without_record = self._documents.count_rows(kept)
        check_outcomes(self._spark, commit_id)
        if without_record:
            raise ConfigError(
                f"{without_record:,} rows of the batch have no {' or '.join(POSITION_COLUMNS)}, by which a document "
                "is known",
                where=self._sink.where,
                hint="transform.sql has to keep them as they are; or mode: upsert with keys",
            )
        if self._sink.mode == "upsert":
            return counted_groups(kept, keys=keys, where=self._sink.where, kind="elasticsearch")
        return count

    def _write_batch(self, kept: DataFrame, commit: Commit, *, commit_id: str, counts: str) -> int:
        while (standing := self.ledger.begin(commit, commit_id=commit_id)) is not None:
            if self._sink.mode == "append":
                self.ledger.require_same_topics(standing, commit)
            self._layout.require()
            if commit.rows:
                has_changes, keys = self._documents.has_changes, self._documents.keys(kept)
                rows = latest_per_key(kept, keys=keys, order_by=()) if has_changes else kept
                self._write(self._documents.of(rows), fence=commit.fence or "", version=standing.number)
            if self.ledger.write(standing, commit, commit_id=commit_id, counts=counts):
                break
        return commit.rows

    def _write(self, documents: DataFrame, *, fence: str, version: int) -> None:
        java, secret = jvm.java(self._spark).elasticsearch, None
        if (login := authorization(self._sink)) is not None:
            secret = f"{self._sink.username or 'api_key'}@{self._sink.urls[0]}"
            jvm.put_secret(self._spark, secret, SecretStr(login))
        target = java.BulkTarget(
            f"{path_of(self._sink.index)}/_bulk",
            self.ledger.path,
            fence,
            version,
            self._sink.bulk_documents,
            self._sink.bulk_bytes,
            int(self._context.patience),
        )
        try:
            java.Cluster.of(list(self._sink.urls), secret, authority(self._sink)).write(documents._jdf, target)
        except Exception as error:
            if (found := FAILURE.search(str(error))) is None:
                raise
            raise self._bulk_error(found[1], found[2].strip(), fence=fence) from None

    def _bulk_error(self, kind: str, text: str, *, fence: str) -> Exception:
        where = self._sink.where
        if kind == "AWAY":
            return Unreachable(f"the search server does not take the documents: {text}", where=where)
        if kind == "DENIED":
            hint = "the login has to write the index; an index that is read-only has to be opened"
            return AccessDenied(f"the search server does not let it write: {text}", where=where, hint=hint)
        if kind == "REFUSED":
            return ConfigError(
                f"the search server refuses a document: {text}",
                where=where,
                hint="change the mapping, which requires a new index, or the value in transform.sql; "
                "expect: {…: {rule: …, on_violation: dead_letter}} keeps such records apart",
            )
        standing = self.ledger.standing()
        if standing is None or standing.fence != fence:
            return DriverReplaced(TAKEN_OVER, where=f"{where}: this driver's fence {fence}", hint=ONE_PLACE)
        return CheckpointMismatch(
            f"the index has a newer version of a document than the ledger can have given it: {text}",
            where=where,
            hint="another client writes the same documents, or lakefeed_feeds was restored without the index: give the "
            "feed an index of its own",
        )


class ElasticsearchDefinition(SinkDefinition[ElasticsearchSinkConfig]):
    """An index on a search server, with the ledger in another index."""

    def open(self, spark: SparkSession, claim: Claim) -> ElasticsearchIndex:
        return ElasticsearchIndex(spark, self.settings, self.context)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> ElasticsearchIndex:
        return ElasticsearchIndex(spark, self.settings, self.context)

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Find problems with the keys, types and positions that documents need."""
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
    """Find all problems that would stop a run, without Spark; ``key`` is the block's path in the pipeline file."""
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
    """Refuse servers of other kinds or old versions."""
    version = server.ask("GET", "/").document.get("version")
    number = str(version.get("number", "")) if isinstance(version, dict) else ""
    if not number[:1].isdigit():
        hint = "give the address of the server's REST API, usually at port 9200"
        raise ConfigError("this address answers, but not as Elasticsearch or OpenSearch does", where=where, hint=hint)
    is_opensearch = isinstance(version, dict) and version.get("distribution") == "opensearch"
    if not is_opensearch and int(number.partition(".")[0]) < OLDEST:
        raise ConfigError(f"the server is Elasticsearch {number}", where=where, hint="it has to be 7 or newer")
