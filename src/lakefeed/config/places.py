"""Places that a pipeline writes to: each once, and none that it also reads or keeps something else at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import PipelineBlocks, SinkChoice
from lakefeed.config.connections import Connections
from lakefeed.config.jdbc import Address
from lakefeed.config.storage import is_local
from lakefeed.config.topic_tables import config_of
from lakefeed.config.values import TOPIC_MARK


@dataclass(frozen=True)
class Place:
    """A place that a pipeline names.

    Attributes:
        key: where the file names it, as ``sink.iceberg.table``.
        kind: a table, a topic and so on.
        name: one spelling for all names of the place.
        feed: the name of the feed, where each topic is one.
        servers: addresses of which one is enough to reach it; none where the name says it all.
    """

    key: str
    kind: str
    name: str
    use: Literal["rows", "dead letters", "source"]
    feed: str = ""
    servers: frozenset[str] = frozenset()

    def mixes_with(self, other: Place) -> bool:
        """Return whether rows would mix: only feeds of different names may keep their dead letters together."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        is_one_server = self.servers == other.servers or bool(self.servers & other.servers)
        return is_one_server and not (self.use == other.use == "dead letters" and self.feed != other.feed)


def shared_places(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield each place that the pipeline uses for two things, which would mix, or feed each other."""
    found: list[Place] = []
    for place in _places(config):
        if (other := next((earlier for earlier in found if place.mixes_with(earlier)), None)) is not None:
            yield ConfigProblem(_explain(place, other))
        found.append(place)


def stored_at(config: PipelineBlocks, connections: Connections) -> dict[str, str]:
    """Return the places that the feed keeps files at, in a store or on this machine, by the setting that names each."""
    found = {"checkpoint": config.checkpoint} if config.checkpoint else {}
    for place, block in config.sink_blocks:
        sink = block.chosen
        found |= {f"{place}.{block.kind}.{option}": path for option, path in sink.storage_paths.items()}
        catalog = connections.catalogs.get(sink.catalog_name or "")
        is_name = catalog is not None and catalog.folder is None and is_local(catalog.warehouse)
        if catalog is not None and catalog.warehouse and not is_name:
            found[f"catalogs.{sink.catalog_name}.warehouse"] = catalog.warehouse
    return found


def is_on_disk(config: PipelineBlocks, connections: Connections) -> bool:
    """Check that all files that the feed keeps are on this machine."""
    places = stored_at(config, connections).values()
    return bool(places) and all(map(is_local, places))


def _explain(place: Place, other: Place) -> str:
    which = f"{place.kind} {place.name}"
    if other.use == "source":
        return f"{place.key} is the {which}, which the source reads: {place.use} would go in a circle"
    if place.use == other.use == "rows":
        return f"{place.key} goes where another sink goes: {other.key} is the {which} too"
    why = "rows and dead letters would mix"
    if place.use == other.use:
        why = "their feeds have one name, and their dead letters could not be distinguished"
    return f"{place.key} and {other.key} are one place, the {which}: {why}"


def servers_of(brokers: str) -> frozenset[str]:
    """Return the addresses of brokers in one spelling."""
    return frozenset(server.strip().casefold() for server in brokers.split(",") if server.strip())


def _places(config: PipelineBlocks) -> Iterator[Place]:
    source = config.source
    # Topics are compared by rules of their own, since a source may read a pattern of them.
    if source.iceberg is not None:
        yield Place("source.iceberg.table", "table", source.iceberg.table.casefold(), "source")
    if source.files is not None:
        yield Place("source.files.path", "path", _spell_path(source.files.path), "source")
    for key, sink in config.sink_blocks:
        yield from _places_of_sink(key, sink, config)
    letters = config.dead_letters
    if letters is not None and letters.table is not None and not config.has_many_tables:
        yield Place("dead_letters.table", "table", letters.table.casefold(), "dead letters")
    if letters is not None and letters.topic is not None and source.kafka is not None:
        servers = servers_of(source.kafka.bootstrap_servers)
        yield Place("dead_letters.topic", "topic", letters.topic, "dead letters", servers=servers)
    if config.has_many_tables and source.kafka is not None:
        # The topics that the file names, and any other one that a pattern may match.
        named = [*(source.kafka.topics or (TOPIC_MARK,)), *config.table_rules.topics]
        for topic in dict.fromkeys(named):
            part = config_of(config, topic)
            yield from tables_of_topic(topic, part)
            yield from _own_dead_letter_topic(topic, part, config)


def _places_of_sink(key: str, block: SinkChoice, config: PipelineBlocks) -> Iterator[Place]:
    sink = block.chosen
    if block.iceberg is not None:
        # Hive, Glue and most engines take names for one that differ in case only.
        for option, table in block.iceberg.snapshot_tables.items() if not config.has_many_tables else ():
            yield Place(f"{key}.iceberg.{option}", "table", table.casefold(), "rows")
    elif block.jdbc is not None:
        at = Address.of(block.jdbc.url)
        schema, _, table = block.jdbc.table.rpartition(".")
        is_default = schema == ("public" if at.kind == "postgresql" else at.database)
        name = ".".join(part for part in (at.database, "" if is_default else schema, table) if part)
        servers = frozenset({f"{at.host}:{at.port}".casefold()})
        yield Place(f"{key}.jdbc.table", "table", name, "rows", servers=servers)
    elif block.elasticsearch is not None:
        urls = [urlsplit(url) for url in block.elasticsearch.urls]
        servers = frozenset(f"{url.hostname}:{url.port or {'http': 80}.get(url.scheme, 443)}" for url in urls)
        yield Place(f"{key}.elasticsearch.index", "index", block.elasticsearch.index, "rows", servers=servers)
    elif block.kafka is not None:
        servers = servers_of(config.brokers_of(block.kafka))
        yield Place(f"{key}.kafka.topic", "topic", block.kafka.topic, "rows", servers=servers)
    elif sink.storage_paths:
        yield Place(key, "path", _spell_path(sink.target), "rows")
    elif sink.target:
        # Two sinks may have one class, or one format, with different options.
        options = [f"{name}={value}" for name, value in sorted(getattr(sink, "options", {}).items())]
        yield Place(key, block.kind, ", ".join([sink.target, *options]), "rows")


def tables_of_topic(topic: str, part: PipelineBlocks) -> Iterator[Place]:
    """Yield the tables of one topic, where each has its own; ``part`` is the pipeline of the topic alone."""
    of = "" if topic == TOPIC_MARK else f" of topic {topic}"
    assert part.sink.iceberg is not None  # Else there would not be many tables.
    for option, table in part.sink.iceberg.snapshot_tables.items():
        # Two topics' names may differ in case only; the file can say that their tables do.
        name = table.casefold() if table in part.sink.iceberg.names_made else table
        yield Place(f"sink.iceberg.{option}{of}", "table", name, "rows", part.name)
    letters = part.dead_letters.table if part.dead_letters is not None else None
    if letters is not None:
        yield Place(f"dead_letters.table{of}", "table", letters.casefold(), "dead letters", part.name)


def _own_dead_letter_topic(topic: str, part: PipelineBlocks, config: PipelineBlocks) -> Iterator[Place]:
    # The dead-letter topic that all topics share has a rule of its own.
    letters = part.dead_letters
    own = letters.topic if letters is not None and letters != config.dead_letters else None
    if own is not None and config.kafka.reads(own):
        yield Place("source.kafka", "topic", own, "source", part.name)
        yield Place(f"dead_letters.topic of topic {topic}", "topic", own, "dead letters", part.name)


def _spell_path(path: str) -> str:
    # S3A and file systems take several slashes for one.
    scheme, _, rest = path.partition("://") if "://" in path else ("file", "", path.removeprefix("file:"))
    return f"{'s3a' if scheme == 's3' else scheme}://{'/'.join(part for part in rest.split('/') if part)}"
