"""Checks that no two parts of a pipeline write to one table, topic or path, and that the source reads none of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakefeed.config.addresses import Place, is_local, servers_of, spell_path
from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.connections import Connections
from lakefeed.config.topic_tables import config_of
from lakefeed.config.values import TOPIC_MARK


def shared_places(config: PipelineBlocks) -> Iterator[ConfigProblem]:
    """Yield a problem for each place that two parts of the pipeline would write to, or that the source would read."""
    found: list[Place] = []
    for place in _places(config):
        if (other := next((earlier for earlier in found if place.mixes_with(earlier)), None)) is not None:
            yield ConfigProblem(_explain(place, other), hint=f"change {place.key}")
        found.append(place)


def stored_at(config: PipelineBlocks, connections: Connections) -> dict[str, str]:
    """Return the paths of the feed's files, in a store or on this machine, by the settings that name them."""
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
    """Return whether all of the feed's files are on this machine."""
    places = stored_at(config, connections).values()
    return bool(places) and all(map(is_local, places))


def _explain(place: Place, other: Place) -> str:
    which = f"{place.kind} {place.name}"
    if other.use == "source":
        return f"{place.key} is the {which}, which the source reads: the feed would read its own {place.use}"
    if place.use == other.use == "rows":
        return f"{place.key} and {other.key} are both the {which}: two sinks cannot write to it"
    why = "rows and dead letters would mix"
    if place.use == other.use:
        why = "both feeds have the same name, so their dead letters could not be distinguished"
    return f"{place.key} and {other.key} are both the {which}: {why}"


def _places(config: PipelineBlocks) -> Iterator[Place]:
    source = config.source
    # Other rules compare the source's topics, since a source may read a pattern of topics.
    if source.iceberg is not None:
        yield Place("source.iceberg.table", "table", source.iceberg.table.casefold(), "source")
    if source.files is not None:
        yield Place("source.files.path", "path", spell_path(source.files.path), "source")
    for key, block in config.sink_blocks:
        # If each topic has a table, the loop over the topics below yields the sink's tables.
        sink = block.chosen
        for place in sink.places(brokers=config.brokers) if not (config.has_many_tables and key == "sink") else ():
            option = f"{key}.{block.kind}.{place.key}" if place.key else key
            yield replace(place, key=option, kind=place.kind or block.kind)
    letters = config.dead_letters
    if letters is not None and letters.table is not None and not config.has_many_tables:
        yield Place("dead_letters.table", "table", letters.table.casefold(), "dead letters")
    if letters is not None and letters.topic is not None and source.kafka is not None:
        servers = servers_of(source.kafka.bootstrap_servers)
        yield Place("dead_letters.topic", "topic", letters.topic, "dead letters", servers=servers)
    if config.has_many_tables and source.kafka is not None:
        # {topic} stands for all topics that only a pattern covers, because the file does not name them.
        named = [*(source.kafka.topics or (TOPIC_MARK,)), *config.table_rules.topics]
        for topic in dict.fromkeys(named):
            part = config_of(config, topic)
            yield from tables_of_topic(topic, part)
            yield from _own_dead_letter_topic(topic, part, config)


def tables_of_topic(topic: str, part: PipelineBlocks) -> Iterator[Place]:
    """Yield the tables of one topic; ``part`` is the pipeline of this topic."""
    of = "" if topic == TOPIC_MARK else f" of topic {topic}"
    sink = part.sink.chosen
    for option, table in sink.snapshot_tables.items():
        # Names of topics may differ in case only. So ignore the case of table names made from topics only.
        name = table.casefold() if table in sink.names_made else table
        yield Place(f"sink.{part.sink.kind}.{option}{of}", "table", name, "rows", part.name)
    letters = part.dead_letters.table if part.dead_letters is not None else None
    if letters is not None:
        yield Place(f"dead_letters.table{of}", "table", letters.casefold(), "dead letters", part.name)


def _own_dead_letter_topic(topic: str, part: PipelineBlocks, config: PipelineBlocks) -> Iterator[Place]:
    # The rule _dead_letters of models.py checks a dead-letter topic that all topics share.
    letters = part.dead_letters
    own = letters.topic if letters is not None and letters != config.dead_letters else None
    if own is not None and config.kafka.reads(own):
        yield Place("source.kafka", "topic", own, "source", part.name)
        yield Place(f"dead_letters.topic of topic {topic}", "topic", own, "dead letters", part.name)
