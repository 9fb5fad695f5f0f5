"""Describe, sample and profile a topic from Python, without a Spark session."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from lakefeed.clients.environment import default_environment
from lakefeed.clients.kafka.records import Record, follow
from lakefeed.clients.kafka.selection import topics_of
from lakefeed.clients.kafka.topics import TopicDescription, Topics, partitions_of
from lakefeed.clients.spark.session import log_path
from lakefeed.config.base import validated
from lakefeed.config.decoding import Decode
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.messages.printable import ReadableResult, counted, html_table
from lakefeed.records.decode.registry import RegisteredSchema, SchemaRegistry
from lakefeed_local.topics.places import TopicPlace, chosen_records, following_starts
from lakefeed_local.topics.profile import TopicProfile, profile_topic
from lakefeed_local.topics.record_view import ShownRecord, TopicView

if TYPE_CHECKING:
    from lakefeed import Pipeline

SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "message.timestamp.type")
"""The topic settings that ``describe`` shows: retention and sizes of records."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TopicDetails(ReadableResult):
    """A topic's partitions, settings, and the newest schemas of its subjects."""

    description: TopicDescription
    settings: Mapping[str, str]
    schemas: tuple[RegisteredSchema, ...]

    @property
    def headline(self) -> str:
        found = self.description
        return f"{found.name}: {counted(found.offsets, 'offset')} in {counted(len(found.partitions), 'partition')}"

    @property
    def figures(self) -> Mapping[str, str]:
        schemas = {f"schema of {each.subject}": self.schema_text(each) for each in self.schemas}
        return {"id": self.description.topic_id, **self.settings, **schemas}

    @staticmethod
    def schema_text(schema: RegisteredSchema) -> str:
        return f"{schema.kind}, version {schema.version}, id {schema.schema_id}"

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        schemas = [
            {"subject": each.subject, "version": each.version, "schema_id": each.schema_id, "kind": each.kind}
            for each in self.schemas
        ]
        found = self.description
        return {**asdict(found), "offsets": found.offsets, "settings": dict(self.settings), "schemas": schemas}

    def _repr_html_(self) -> str:
        rows = [
            (str(part.id), str(part.leader), f"{part.start_offset:,}", f"{part.end_offset:,}")
            for part in self.description.partitions
        ]
        return super()._repr_html_() + html_table(("partition", "leader", "first offset", "end offset"), rows)


@dataclass(frozen=True, kw_only=True, repr=False)
class TopicSample(ReadableResult):
    """Some records of a topic, oldest first.

    Attributes:
        looked_at: the number of records that were read.
        held: the number of offsets of the chosen partitions.
        notes: messages about records without the condition's columns and about unknown schema ids.
    """

    topic: str
    records: tuple[ShownRecord, ...]
    looked_at: int
    held: int
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        looked = "" if self.looked_at == len(self.records) else f"{self.looked_at:,} looked at, of "
        return f"{self.topic}: {counted(len(self.records), 'record')} of {looked}{counted(self.held, 'offset')}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The decoded values with topic, partition and offset, for example for ``pandas.DataFrame``."""
        return [
            {
                "kafka_partition": each.partition,
                "kafka_offset": each.offset,
                "kafka_timestamp": each.timestamp,
                "kafka_key": each.key,
                **(each.value if isinstance(each.value, dict) else {"value": each.value}),
            }
            for each in self.records
        ]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names, and a row of cells per record."""
        fields = dict.fromkeys(
            name for each in self.records for name in (each.value if isinstance(each.value, dict) else ["value"])
        )
        columns = ["partition", "offset", "time", "key", *fields]
        errors = any(each.error for each in self.records)
        rows = []
        for each in self.records:
            values = each.value if isinstance(each.value, dict) else {"value": each.value}
            time = "" if each.timestamp is None else each.timestamp.isoformat(" ", "milliseconds")[:23]
            cells = [cell_text(values.get(name)) if name in values else "" for name in fields]
            row = [str(each.partition), str(each.offset), time, cell_text(each.key), *cells]
            rows.append([*row, each.error or ""] if errors else row)
        return ([*columns, "error"] if errors else columns), rows

    def _repr_html_(self) -> str:
        return super()._repr_html_() + html_table(*self.cells())


def cell_text(value: Any) -> str:
    """Format a decoded value for a cell: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Topic:
    """A topic, or the topics of a pipeline, to describe, sample and profile.

    Args:
        name: the topic's name.
        bootstrap_servers: brokers. Default: KAFKA_BOOTSTRAP_SERVERS, else the running local stack.
        registry: URL of a Schema Registry. Default: SCHEMA_REGISTRY_URL, else the local stack's, else none.
        decode: a block as ``decode`` in a pipeline file. Default: the bytes of each record decide whether it is decoded
            with its writer's schema, or is JSON, text or bytes.
        options: Kafka client settings with the prefix ``kafka.``.

    Example:
        >>> from lakefeed_local import Topic
        >>> Topic("nyc-avro-topic").sample(3, where="fare_amount > 50")
        <TopicSample: nyc-avro-topic: 3 records of 10,000 looked at, of 10,000 offsets>
    """

    def __init__(
        self,
        name: str,
        *,
        bootstrap_servers: str | None = None,
        registry: str | None = None,
        decode: Mapping[str, Any] | str | None = None,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        environment = default_environment()
        servers = bootstrap_servers or environment.get("KAFKA_BOOTSTRAP_SERVERS")
        if not servers:
            hint = "set KAFKA_BOOTSTRAP_SERVERS, or start one: lakefeed local up"
            raise ConfigError("no Kafka broker is named", where=f"Topic({name!r})", hint=hint)
        self.name = name
        self._source = validated(
            KafkaSource, f"Topic({name!r})", bootstrap_servers=servers, topics=[name], options=dict(options or {})
        )
        url = registry or environment.get("SCHEMA_REGISTRY_URL")
        self._registry = None if url is None else SchemaRegistry(url)
        self._decode: Decode | None = None
        if decode is not None:
            self._decode = validated(Decode, "decode", **({decode: {}} if isinstance(decode, str) else decode))

    @classmethod
    def of_pipeline(cls, pipeline: Pipeline, *, topic: str | None = None) -> Topic:
        """Return an object for one or all topics of a pipeline, which decodes records as the pipeline file says."""
        source, decode = pipeline.config.kafka, pipeline.config.decode
        if topic is not None:
            if not source.reads(topic):
                hint = f"the pipeline reads {', '.join(source.topics or [str(source.topics_pattern)])}"
                what = f"the pipeline does not read the topic {topic}"
                raise ConfigError(what, where=pipeline.config.name, hint=hint)
            source = source.model_copy(update={"topics": [topic], "topics_pattern": None})
        own = cls.__new__(cls)
        own._source, own._decode = source, decode
        own.name = ", ".join(source.topics or [str(source.topics_pattern)])
        own._registry = None
        return own

    def describe(self) -> TopicDetails:
        """Return partitions, settings and schemas.

        Raises:
            ResourceMissing: the topic does not exist; the hint lists similar names.
            Unreachable: no broker answers.
        """
        cluster = Topics(self._source.bootstrap_servers, options=self._source.client_options)
        description = cluster.describe(self.name)
        settings = {key: value for key, value in cluster.settings(self.name).items() if key in SETTINGS}
        return TopicDetails(description=description, settings=settings, schemas=tuple(self._schemas()))

    def sample(
        self,
        limit: int = 20,
        *,
        start: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        where: str | None = None,
        fields: str | None = None,
        scan: int = 10_000,
    ) -> TopicSample:
        """Return some records: the newest ones, or the first ones from a time or an offset on.

        Args:
            limit: the most records to return.
            start: ``earliest``, a time in ISO 8601 (UTC), or an age: ``15m``. Default: the newest records.
            partition: only this partition.
            offset: instead of ``start``, an offset of this partition; ``-10`` for its last ten offsets.
            key: only records with this key.
            where: a condition in Spark SQL over the fields of the value, ``kafka_key``, ``kafka_offset`` and so on.
            fields: columns to show instead of the whole value: ``"fare_amount, upper(zone) AS zone"``.
            scan: the number of records to search for ``key`` or ``where``.

        Raises:
            ConfigError: an expression is invalid, or can be evaluated on none of the records.
        """
        place = TopicPlace(start=start, partition=partition, offset=offset)
        is_search = key is not None or where is not None
        # Without a search, read ``limit`` records of each partition: all of the newest records may be in one partition.
        records = chosen_records(self._source, place, most=max(limit, scan), each=None if is_search else limit)
        held = sum(part.end_offset - part.start_offset for part in self._parts(partition).values())
        searched = 0

        def counted_records() -> Iterator[Record]:
            nonlocal searched
            for record in records:
                searched += 1
                yield record

        with self._view(where, fields) as view:
            matches = [each for each in view.show(counted_records()) if key is None or has_key(each, key)]
            view.require_fitting(len(matches))
        # A stable sort leaves records without a time in their order.
        matches.sort(key=lambda each: each.timestamp or datetime.min.replace(tzinfo=UTC))
        newest = start is None and offset is None
        shown = matches[-limit:] if newest else matches[:limit]
        return TopicSample(
            topic=self.name,
            records=tuple(shown),
            looked_at=searched if is_search else len(shown),
            held=held,
            notes=tuple(view.notes()),
        )

    def tail(
        self,
        *,
        last: int = 10,
        start: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        where: str | None = None,
        fields: str | None = None,
        stop: threading.Event | None = None,
    ) -> Iterator[ShownRecord]:
        """Yield the ``last`` records of each partition, or all from a time or offset on, then new ones, until ``stop``.

        The other arguments are those of ``sample``.
        """
        place = TopicPlace(start=start, partition=partition, offset=offset)
        starts = following_starts(self._source, place, last=last)
        with self._view(where, fields) as view:
            for records in follow(self._source, starts):
                if stop is not None and stop.is_set():
                    return
                yield from (each for each in view.show(records) if key is None or has_key(each, key))

    def profile(self, *, records: int = 10_000, start: str | None = None, partition: int | None = None) -> TopicProfile:
        """Return a profile of the topic by its newest records, or by the first ones from ``start`` on."""
        chosen = chosen_records(self._source, TopicPlace(start=start, partition=partition), most=records)
        first = next(chosen, None)
        if first is None:
            what, hint = (
                f"the topic {self.name} has no records from this position on",
                "begin earlier: --from, or another --partition",
            )
            raise ResourceMissing(what, where=self._source.bootstrap_servers, hint=hint)
        with self._view(None, None) as view:
            return profile_topic(self._source, self.name, self._parts(partition), view.show(chain([first], chosen)))

    def _parts(self, partition: int | None) -> Mapping[Any, Any]:
        parts = partitions_of(topics_of(self._source))
        return {key: part for key, part in parts.items() if partition is None or key[1] == partition}

    def _view(self, where: str | None, fields: str | None) -> TopicView:
        return TopicView(
            self._source,
            registry=self._registry,
            decode=self._decode,
            where=where,
            fields=fields,
            log_file=log_path("topics"),
        )

    def _schemas(self) -> Iterator[RegisteredSchema]:
        if self._registry is not None:
            for part in ("key", "value"):
                with suppress(ResourceMissing):
                    yield self._registry.latest(f"{self.name}-{part}")


def has_key(record: ShownRecord, key: str) -> bool:
    """Return whether a record has this key, as text or as bytes."""
    raw = record.raw
    return (raw is not None and raw.key == key.encode()) or (record.key is not None and cell_text(record.key) == key)
