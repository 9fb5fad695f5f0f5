"""The datasets that a feed reads and writes, named by OpenLineage's naming specification.

Names come from the pipeline file and the connections alone: no server is asked. So a table is named by the place that
its catalog gives a new one, and by the catalog's address where that does not say the place, as of a REST catalog. The
table's name within the catalog is a symlink beside it. https://openlineage.io/docs/spec/naming
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from lakefeed.config.blocks import SinkChoice
from lakefeed.config.connections import Connections
from lakefeed.config.dataset_names import path_name, topic_name
from lakefeed.config.models import PipelineConfig
from lakefeed.config.topic_tables import config_of

MOST_DATASETS = 500
"""Of each side of an event: a job of more topics reports the first ones."""


@dataclass(frozen=True)
class Dataset:
    """One dataset.

    Attributes:
        facets: what is known of it, by the facet's name in OpenLineage; without ``_producer`` and ``_schemaURL``.
        topic: whose records it has; None for several topics.
        has_rows: whether the feed's rows are in it, and not its dead letters.
    """

    namespace: str
    name: str
    facets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    topic: str | None = None
    has_rows: bool = False


def inputs(config: PipelineConfig, topics: Sequence[str] = ()) -> list[Dataset]:
    """Return what the feed reads.

    Args:
        topics: those that are known, for a source that names a pattern.
    """
    source = config.source
    found: list[Dataset] = []
    if source.kafka is not None:
        names = source.kafka.topics or sorted(topics)
        found = [Dataset(*topic_name(source.kafka.bootstrap_servers, name), topic=name) for name in names]
    elif source.kinesis is not None:
        found = [Dataset(f"kinesis://{source.kinesis.region or 'us-east-1'}", source.kinesis.stream)]
    elif source.files is not None:
        found = [Dataset(*path_name(source.files.path))]
    return found[:MOST_DATASETS]


def outputs(config: PipelineConfig, connections: Connections, topics: Sequence[str] = ()) -> list[Dataset]:
    """Return what the feed writes: the tables of its sinks, then its dead letters."""
    if config.has_many_tables:
        known = sorted({*(config.kafka.topics or ()), *topics})[:MOST_DATASETS]
        parts = [(topic, config_of(config, topic)) for topic in known]
        each = [dataset for topic, part in parts for dataset in _outputs_of(part, connections, topic)]
        return _once(each)[:MOST_DATASETS]
    return _once(_outputs_of(config, connections, None))


def _once(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Leave out repeated datasets, such as dead letters of all topics in one table."""
    return list({(dataset.namespace, dataset.name): dataset for dataset in datasets}.values())


def _outputs_of(config: PipelineConfig, connections: Connections, topic: str | None) -> list[Dataset]:
    found = [dataset for _, sink in config.sink_blocks for dataset in _sink(sink, config, connections, topic)]
    letters = config.dead_letters
    if letters is not None and letters.table is not None:
        found.append(_table(letters.table, connections))
    if letters is not None and letters.topic is not None and config.source.kafka is not None:
        found.append(Dataset(*topic_name(config.source.kafka.bootstrap_servers, letters.topic), topic=letters.topic))
    return found


def _sink(block: SinkChoice, config: PipelineConfig, connections: Connections, topic: str | None) -> Iterator[Dataset]:
    sink = block.chosen
    for table in sink.snapshot_tables.values():
        yield _table(table, connections, topic=topic, has_rows=table == sink.snapshot_table)
    named = sink.dataset(feed=config.name, brokers=config.brokers)
    if named is not None:
        yield Dataset(*named, has_rows=True)


def _table(table: str, connections: Connections, *, topic: str | None = None, has_rows: bool = False) -> Dataset:
    name, *namespaces, short = table.split(".")
    within = ".".join((*namespaces, short))
    facets: dict[str, Mapping[str, Any]] = {"storage": {"storageLayer": "iceberg", "fileFormat": "parquet"}}
    catalog = connections.catalogs.get(name)
    if catalog is None:
        return Dataset(name, within, facets, topic, has_rows)
    address = catalog.uri or f"glue://{connections.s3.region}"
    described = {"framework": "iceberg", "type": catalog.type, "name": name, "source": "spark", "metadataUri": address}
    facets["catalog"] = described | ({"warehouseUri": catalog.warehouse} if catalog.warehouse else {})
    warehouse = urlsplit(catalog.warehouse or "")
    if warehouse.scheme not in ("s3", "file") or catalog.type == "rest":
        return Dataset(address, within, facets, topic, has_rows)
    facets["symlinks"] = {"identifiers": [{"namespace": address, "name": within, "type": "TABLE"}]}
    # As Iceberg's catalogs place a new table.
    folder = "/".join(namespaces) + (".db" if catalog.type in ("hive", "glue") else "")
    path = "/".join(part for part in (warehouse.path.strip("/"), folder, short) if part)
    return Dataset(*path_name(f"{warehouse.scheme}://{warehouse.netloc}/{path}"), facets, topic, has_rows)
