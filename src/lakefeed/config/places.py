"""Where a pipeline writes: each place once, and never where something else of it is read or kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import PipelineBlocks, SinkChoice
from lakefeed.config.elasticsearch import ElasticsearchSinkConfig
from lakefeed.config.jdbc import Address, JdbcSinkConfig
from lakefeed.config.topic_tables import config_of
from lakefeed.config.values import TOPIC_MARK

Use = Literal["rows", "dead letters", "source"]


@dataclass(frozen=True)
class Place:
    """A place that a pipeline names.

    Attributes:
        key: where the file names it, as ``sink.iceberg.table``.
        kind: what it is: a table, a topic and so on.
        name: its name, one spelling for all that mean the same.
        use: what the pipeline does there.
        feed: the name of the feed, where each topic is one.
        servers: addresses of which one is enough to reach it; none where the name says it all.
    """

    key: str
    kind: str
    name: str
    use: Use
    feed: str = ""
    servers: frozenset[str] = frozenset()

    def is_at(self, other: Place) -> bool:
        """Whether the two are one place."""
        same = (self.kind, self.name) == (other.kind, other.name)
        return same and (self.servers == other.servers or bool(self.servers & other.servers))

    def mixes_with(self, other: Place) -> bool:
        """Whether what is at the two would mix: only feeds of different names may keep their dead letters together."""
        letters = self.use == other.use == "dead letters" and self.feed != other.feed
        return self.is_at(other) and not letters


def shared_places(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Each place that the pipeline uses for two things, which would mix, or feed each other."""
    found: list[Place] = []
    for place in _all(config):
        if (other := next((each for each in found if place.mixes_with(each)), None)) is not None:
            yield ConfigProblem(_what(place, other))
        found.append(place)


def _what(place: Place, other: Place) -> str:
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
    """The addresses of brokers, written one way."""
    return frozenset(each.strip().casefold() for each in brokers.split(",") if each.strip())


def _all(config: PipelineBlocks) -> Iterator[Place]:
    yield from _sources(config)
    for place, block in config.sink_blocks:
        yield from _of_sink(place, block, config)
    yield from _of_dead_letters(config)
    for topic, part in _parts(config):
        yield from tables_of_topic(topic, part)
        yield from _letters_in_a_circle(topic, part, config)


def _sources(config: PipelineBlocks) -> Iterator[Place]:
    source = config.source
    if source.iceberg is not None:
        yield Place("source.iceberg.table", "table", source.iceberg.table.casefold(), "source")
    if source.files is not None:
        yield Place("source.files.path", "path", _path(source.files.path), "source")
    # Topics are compared by rules of their own, since a source may read a pattern of them.


def _of_sink(place: str, block: SinkChoice, config: PipelineBlocks) -> Iterator[Place]:
    sink = block.chosen
    if block.iceberg is not None:
        if not config.has_many_tables:
            yield from _tables(f"{place}.iceberg", block.iceberg.table, block.iceberg.history)
    elif block.jdbc is not None:
        yield _of_jdbc(place, block.jdbc)
    elif block.elasticsearch is not None:
        yield _of_search(place, block.elasticsearch)
    elif block.kafka is not None:
        own = block.kafka.bootstrap_servers or (config.source.kafka.bootstrap_servers if config.source.kafka else "")
        yield Place(f"{place}.kafka.topic", "topic", block.kafka.topic, "rows", servers=servers_of(own))
    elif sink.target:
        if sink.target.startswith("s3"):
            yield Place(place, "path", _path(sink.target), "rows")
            return
        # Of one class, or one format, there may be two with different options.
        options = [f"{key}={value}" for key, value in sorted(getattr(sink, "options", {}).items())]
        yield Place(place, block.kind, ", ".join([sink.target, *options]), "rows")


def _of_dead_letters(config: PipelineBlocks) -> Iterator[Place]:
    letters = config.dead_letters
    if letters is None:
        return
    if letters.table is not None and not config.has_many_tables:
        yield Place("dead_letters.table", "table", letters.table.casefold(), "dead letters")
    if letters.topic is not None and config.source.kafka is not None:
        servers = servers_of(config.source.kafka.bootstrap_servers)
        yield Place("dead_letters.topic", "topic", letters.topic, "dead letters", servers=servers)


def _parts(config: PipelineBlocks) -> Iterator[tuple[str, PipelineBlocks]]:
    """The pipeline of each topic that the file names, and of any other one that a pattern may match."""
    if not config.has_many_tables or config.source.kafka is None:
        return
    named = [*(config.source.kafka.topics or (TOPIC_MARK,)), *(config.tables.topics if config.tables else ())]
    for topic in dict.fromkeys(named):
        yield topic, config_of(config, topic)


def tables_of_topic(topic: str, part: PipelineBlocks) -> Iterator[Place]:
    """The tables that a topic uses, where each topic has its own.

    Args:
        topic: its name.
        part: the pipeline of this topic alone.
    """
    of = "" if topic == TOPIC_MARK else f" of topic {topic}"
    assert part.sink.iceberg is not None  # Else there would not be many tables.
    sink = part.sink.iceberg
    for each in _tables("sink.iceberg", sink.table, sink.history):
        # Two topics' names may differ in case only; the file can say that their tables do.
        exact = next((name for name in (sink.table, sink.history) if name and name.casefold() == each.name), each.name)
        name = each.name if exact in sink.names_made else exact
        yield replace(each, key=f"{each.key}{of}", name=name, feed=part.name)
    letters = part.dead_letters.table if part.dead_letters is not None else None
    if letters is not None:
        yield Place(f"dead_letters.table{of}", "table", letters.casefold(), "dead letters", part.name)


def _letters_in_a_circle(topic: str, part: PipelineBlocks, config: PipelineBlocks) -> Iterator[Place]:
    """A dead-letter topic of a topic's own that the source reads; what all share is looked at by another rule."""
    letters = part.dead_letters
    own = letters.topic if letters is not None and letters != config.dead_letters else None
    if own is not None and config.kafka.reads(own):
        yield Place("source.kafka", "topic", own, "source", part.name)
        yield Place(f"dead_letters.topic of topic {topic}", "topic", own, "dead letters", part.name)


def _tables(key: str, table: str, history: str | None) -> Iterator[Place]:
    # Hive, Glue and most engines take names for one that differ in case only.
    yield Place(f"{key}.table", "table", table.casefold(), "rows")
    if history is not None:
        yield Place(f"{key}.history", "table", history.casefold(), "rows")


def _of_jdbc(place: str, sink: JdbcSinkConfig) -> Place:
    at = Address.of(sink.url)
    schema, _, table = sink.table.rpartition(".")
    if schema == ("public" if at.kind == "postgresql" else at.database):
        schema = ""
    name = ".".join(each for each in (at.database, schema, table) if each)
    return Place(f"{place}.jdbc.table", "table", name, "rows", servers=frozenset({f"{at.host}:{at.port}".casefold()}))


def _of_search(place: str, sink: ElasticsearchSinkConfig) -> Place:
    parts = [urlsplit(each) for each in sink.urls]
    ports = {"http": 80, "https": 443}
    servers = frozenset(f"{each.hostname}:{each.port or ports.get(each.scheme, 0)}" for each in parts)
    return Place(f"{place}.elasticsearch.index", "index", sink.index, "rows", servers=servers)


def _path(path: str) -> str:
    """A path in one spelling: S3A takes several slashes for one."""
    scheme, _, rest = path.partition("://")
    parts = [each for each in rest.split("/") if each]
    return f"{'s3a' if scheme == 's3' else scheme}://{'/'.join(parts)}"
