"""Send the OpenLineage events of a run from a separate thread, in limited time.

START is sent when the run begins, RUNNING while batches are committed, and COMPLETE, FAIL or ABORT at the run's end.
If the server does not answer, events are lost, but no batch waits. Only START is sent again, before the next event.
"""

from __future__ import annotations

import http.client
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal
from urllib.parse import urlsplit

from lakefeed.clients.http import exchange
from lakefeed.config.addresses import path_name, topic_name
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.topic_tables import config_of
from lakefeed.config.values import AVAILABLE_NOW, seconds_of
from lakefeed.messages.text import json_line
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FeedProgress
from lakefeed.operations.followers import FollowedRun
from lakefeed.records.columns import RowColumn
from lakefeed_observe.lineage.settings import Lineage

Post = Callable[[bytes, float], int]
"""Sends a document; gets the document and a time limit in seconds, and returns the HTTP status."""


@contextmanager
def reporting(run: LineageRun, monitor: FeedMonitor) -> Iterator[None]:
    """Send a run's events while the block runs, and its last event when the block ends."""
    follower = LineageFollower(run, monitor, post=poster(run.lineage))
    thread = threading.Thread(target=follower.follow, name="lakefeed-lineage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        follower.finish()
        thread.join(run.lineage.timeout_seconds + 1)


def follow(run: FollowedRun) -> AbstractContextManager[None]:
    """Send a run's events if its pipeline file asks for them; send none for a run that never began."""
    config, lineage = run.config, run.config.block(Lineage)
    if lineage is None or run.is_failed_start:
        return nullcontext()
    stays = not run.once and config.trigger != AVAILABLE_NOW
    return reporting(LineageRun(config=config, connections=run.connections, lineage=lineage, stays=stays), run.monitor)


def poster(lineage: Lineage) -> Post:
    """Return a function that posts a document to the server."""
    headers = {"Content-Type": "application/json; charset=utf-8", "Connection": "close"}
    if lineage.api_key is not None:
        headers["Authorization"] = f"Bearer {lineage.api_key.get_secret_value()}"

    def post(body: bytes, seconds: float) -> int:
        return exchange("POST", f"{lineage.url}{lineage.endpoint}", seconds=seconds, headers=headers, body=body).status

    return post


class LineageFollower:
    """Sends the events of one run: ``follow`` runs in a separate thread, and returns after the run's last event."""

    def __init__(self, run: LineageRun, monitor: FeedMonitor, *, post: Post) -> None:
        self._run = run
        self._monitor = monitor
        self._post = post
        self._over = threading.Event()
        self._until = 0.0
        self._start: dict[str, Any] | None = None
        self._failing = False
        self._reported: tuple[object, ...] = ()

    def finish(self) -> None:
        """End the thread; it has ``timeout_seconds`` to send the remaining events."""
        self._until = time.monotonic() + self._run.lineage.timeout_seconds
        self._over.set()

    def follow(self) -> None:
        """Send events until ``finish`` is called."""
        self._start = self._run.event("START", self._monitor.snapshot())
        self._send_start()
        every = seconds_of(self._run.lineage.every)
        while not self._over.wait(every):
            progress = self._monitor.snapshot()
            state = (progress.totals, self._monitor.columns)
            if progress.totals.batches and state != self._reported and self._send_start():
                self._send(self._event("RUNNING"))
                self._reported = state
        self._send_start()
        # KeyboardInterrupt may end the run before the monitor stores an end: report such a run as aborted.
        self._send(self._event(end_of(self._monitor.snapshot()) or "ABORT"))

    def _event(self, kind: Any) -> dict[str, Any]:
        progress, counters = self._monitor.counted()
        return self._run.event(kind, progress, columns=self._monitor.columns, bytes_out=counters.bytes_out or None)

    def _send_start(self) -> bool:
        if self._start is not None and self._send(self._start):
            self._start = None
        return self._start is None

    def _send(self, event: dict[str, Any]) -> bool:
        seconds = self._run.lineage.timeout_seconds
        if self._over.is_set():
            seconds = min(seconds, self._until - time.monotonic())
            if seconds <= 0:
                return False
        why = None
        try:
            status = self._post(json_line(event).encode(), seconds)
            if not 200 <= status < 300:
                why = f"it answers with status {status}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if why is not None and not self._failing:
            self._monitor.note(f"lineage events do not arrive at {self._run.lineage.url}: {why}")
        self._failing = why is not None
        return why is None


EventType = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]

SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
SCHEMAS = {
    "processing_engine": f"{_FACETS}/1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
    "parent": f"{_FACETS}/1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
    "errorMessage": f"{_FACETS}/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "jobType": f"{_FACETS}/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
    "schema": f"{_FACETS}/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "storage": f"{_FACETS}/1-0-1/StorageDatasetFacet.json#/$defs/StorageDatasetFacet",
    "catalog": f"{_FACETS}/1-1-0/CatalogDatasetFacet.json#/$defs/CatalogDatasetFacet",
    "symlinks": f"{_FACETS}/1-0-1/SymlinksDatasetFacet.json#/$defs/SymlinksDatasetFacet",
    "inputStatistics": f"{_FACETS}/1-0-0/InputStatisticsInputDatasetFacet.json#/$defs/InputStatisticsInputDatasetFacet",
    "outputStatistics": f"{_FACETS}/1-0-2/OutputStatisticsOutputDatasetFacet.json"
    "#/$defs/OutputStatisticsOutputDatasetFacet",
}
"""The facets that lakefeed sends, with the addresses of their schemas."""

_INTERRUPTS = ("KeyboardInterrupt", "SystemExit")


def new_run_id() -> str:
    """Return a UUID that begins with the time (version 7), because OpenLineage requires this version."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    return str(uuid.UUID(int=number & ~(0x3 << 62) | 0x2 << 62))


def end_of(progress: FeedProgress) -> EventType | None:
    """Return the type of the event that reports the run's end; None while the run lasts."""
    if progress.state == "ended":
        return "COMPLETE"
    if progress.state != "failed":
        return None
    error = progress.last_error.error if progress.last_error else ""
    return "ABORT" if error in _INTERRUPTS else "FAIL"


@dataclass(frozen=True, kw_only=True)
class LineageRun:
    """One run of a feed, and the content that its events share.

    Attributes:
        stays: True if the run lasts until a user stops it; False if it ends when it has read all records.
    """

    config: PipelineConfig
    connections: Connections
    lineage: Lineage
    stays: bool = True
    run_id: str = field(default_factory=new_run_id)

    def event(
        self,
        kind: EventType,
        progress: FeedProgress,
        *,
        columns: tuple[RowColumn, ...] = (),
        bytes_out: int | None = None,
    ) -> dict[str, Any]:
        """Return the event for this progress; its statistics count from the run's start."""
        topics = sorted({partition.topic for partition in progress.partitions})
        read = inputs(self.config, topics)
        written = outputs(self.config, self.connections, topics)
        records = progress.totals.records if len(read) == 1 else None
        rows = progress.totals.rows if sum(dataset.has_rows for dataset in written) == 1 else None
        job_type = {"processingType": "STREAMING" if self.stays else "BATCH", "integration": "SPARK", "jobType": "JOB"}
        return {
            "eventType": kind,
            "eventTime": datetime.fromtimestamp(progress.taken_at, UTC).isoformat(timespec="milliseconds"),
            "producer": producer(),
            "schemaURL": SPEC,
            "run": {"runId": self.run_id, "facets": self._run_facets(kind, progress)},
            "job": {
                "namespace": self.lineage.namespace,
                "name": self.lineage.job or self.config.name,
                "facets": _facets({"jobType": job_type}),
            },
            "inputs": [
                {
                    "namespace": dataset.namespace,
                    "name": dataset.name,
                    "facets": _facets(dataset.facets),
                    "inputFacets": {} if records is None else _facets({"inputStatistics": {"rowCount": records}}),
                }
                for dataset in read
            ],
            "outputs": [_output(dataset, columns, rows, bytes_out) for dataset in written],
        }

    def _run_facets(self, kind: EventType, progress: FeedProgress) -> dict[str, Any]:
        own = progress.driver.version or "0"
        facets: dict[str, Mapping[str, Any]] = {
            "processing_engine": {"name": "spark", "version": _version("pyspark"), "openlineageAdapterVersion": own}
        }
        if (parent := self.lineage.parent_parts) is not None:
            namespace, job, run = parent
            facets["parent"] = {"run": {"runId": run}, "job": {"namespace": namespace, "name": job}}
        if kind == "FAIL" and (error := progress.last_error) is not None:
            facets["errorMessage"] = {"message": f"{error.error}: {error.text}", "programmingLanguage": "PYTHON"}
        return _facets(facets)


def _output(
    dataset: Dataset, columns: tuple[RowColumn, ...], rows: int | None, bytes_out: int | None
) -> dict[str, Any]:
    facets = dict(dataset.facets)
    # If each topic has a table, their columns differ, so `columns` describes none of them.
    if columns and dataset.has_rows and dataset.topic is None:
        facets["schema"] = {"fields": [column.as_dict() for column in columns]}
    statistics: dict[str, Mapping[str, Any]] = {}
    if dataset.has_rows and rows is not None:
        statistics["outputStatistics"] = {"rowCount": rows} | ({} if bytes_out is None else {"size": bytes_out})
    names = {"namespace": dataset.namespace, "name": dataset.name}
    return {**names, "facets": _facets(facets), "outputFacets": _facets(statistics)}


def _facets(facets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: {"_producer": producer(), "_schemaURL": SCHEMAS[name], **facet} for name, facet in facets.items()}


def producer() -> str:
    """Return the URI of the software that produces the events."""
    return f"urn:lakefeed:{_version('lakefeed')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


MOST_DATASETS = 500
"""The most inputs, and the most outputs, of an event; of more topics, the event has the first."""


@dataclass(frozen=True)
class Dataset:
    """A topic, table or folder, under the name that OpenLineage gives it.

    Attributes:
        facets: by OpenLineage's names, without ``_producer`` and ``_schemaURL``.
        topic: the only topic whose records the dataset has; None if the dataset has records of several topics.
        has_rows: True for the feed's rows, False for its dead letters.
    """

    namespace: str
    name: str
    facets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    topic: str | None = None
    has_rows: bool = False


def inputs(config: PipelineConfig, topics: Sequence[str] = ()) -> list[Dataset]:
    """Return the datasets that the feed reads; ``topics`` are the topics that match the source's pattern."""
    source = config.source
    if source.kafka is not None:
        names = (source.kafka.topics or sorted(topics))[:MOST_DATASETS]
        return [Dataset(*topic_name(source.kafka.bootstrap_servers, name), topic=name) for name in names]
    if source.installed is not None:
        named = source.installed.dataset
        return [] if named is None else [Dataset(named.namespace, named.name)]
    return [] if source.files is None else [Dataset(*path_name(source.files.path))]


def outputs(config: PipelineConfig, connections: Connections, topics: Sequence[str] = ()) -> list[Dataset]:
    """Return the datasets that the feed writes: the tables of its sinks, then its dead letters."""
    if config.has_many_tables:
        known = sorted({*(config.kafka.topics or ()), *topics})[:MOST_DATASETS]
        parts = [(topic, config_of(config, topic)) for topic in known]
        each = [dataset for topic, part in parts for dataset in _outputs_of(part, connections, topic)]
        return _once(each)[:MOST_DATASETS]
    return _once(_outputs_of(config, connections, None))


def _once(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Remove repeated datasets, for example if all topics have the same dead-letter table."""
    return list({(dataset.namespace, dataset.name): dataset for dataset in datasets}.values())


def _outputs_of(config: PipelineConfig, connections: Connections, topic: str | None) -> list[Dataset]:
    found = []
    for sink in (block.chosen for _, block in config.sink_blocks):
        tables = sink.snapshot_tables.values()
        found += [_table(table, connections, topic=topic, has_rows=table == sink.snapshot_table) for table in tables]
        named = sink.dataset(feed=config.name, brokers=config.brokers)
        if named is not None:
            found.append(Dataset(*named, has_rows=True))
    letters = config.dead_letters
    if letters is not None and letters.table is not None:
        found.append(_table(letters.table, connections))
    if letters is not None and letters.topic is not None and config.source.kafka is not None:
        found.append(Dataset(*topic_name(config.source.kafka.bootstrap_servers, letters.topic), topic=letters.topic))
    return found


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
    # Iceberg's catalogs create a new table in this folder.
    folder = "/".join(namespaces) + (".db" if catalog.type in ("hive", "glue") else "")
    path = "/".join(part for part in (warehouse.path.strip("/"), folder, short) if part)
    return Dataset(*path_name(f"{warehouse.scheme}://{warehouse.netloc}/{path}"), facets, topic, has_rows)
