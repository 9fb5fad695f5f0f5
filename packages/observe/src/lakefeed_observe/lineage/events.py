"""OpenLineage run events of a feed, as documents: https://openlineage.io/spec/2-0-2/OpenLineage.json"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.monitor.columns import RowColumn
from lakefeed.monitor.model import FeedProgress
from lakefeed_observe.lineage.datasets import Dataset, inputs, outputs
from lakefeed_observe.lineage.settings import Lineage

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
"""The facets that lakefeed sends, and the versions of their schemas."""

_INTERRUPTS = ("KeyboardInterrupt", "SystemExit")


def new_run_id() -> str:
    """Return a UUID of version 7, which OpenLineage asks for: its first bits are the time."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    return str(uuid.UUID(int=number & ~(0x3 << 62) | 0x2 << 62))


def end_of(progress: FeedProgress) -> EventType | None:
    """Return the event of a run that is over; None while it runs."""
    if progress.state == "ended":
        return "COMPLETE"
    if progress.state != "failed":
        return None
    error = progress.last_error.error if progress.last_error else ""
    return "ABORT" if error in _INTERRUPTS else "FAIL"


@dataclass(frozen=True, kw_only=True)
class LineageRun:
    """One run of a feed, and what all its events have.

    Attributes:
        stays: the run lasts until it is stopped, not until it has caught up.
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
        """Return an event as of this progress; the statistics count from the run's start."""
        topics = sorted({partition.topic for partition in progress.partitions})
        read = inputs(self.config, topics)
        written = outputs(self.config, self.connections, topics)
        records = progress.totals.records if len(read) == 1 else None
        with_rows = [dataset for dataset in written if dataset.has_rows]
        rows = progress.totals.rows if len(with_rows) == 1 else None
        return {
            "eventType": kind,
            "eventTime": datetime.fromtimestamp(progress.taken_at, UTC).isoformat(timespec="milliseconds"),
            "producer": producer(),
            "schemaURL": SPEC,
            "run": {"runId": self.run_id, "facets": self._run_facets(kind, progress)},
            "job": {
                "namespace": self.lineage.namespace,
                "name": self.lineage.job or self.config.name,
                "facets": _facets({"jobType": self._job_type()}),
            },
            "inputs": [_input(dataset, records) for dataset in read],
            "outputs": [_output(dataset, columns, rows, bytes_out) for dataset in written],
        }

    def _job_type(self) -> dict[str, Any]:
        kind = "STREAMING" if self.stays else "BATCH"
        return {"processingType": kind, "integration": "SPARK", "jobType": "JOB"}

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


def _input(dataset: Dataset, records: int | None) -> dict[str, Any]:
    statistics = {} if records is None else {"inputStatistics": {"rowCount": records}}
    return {**_names(dataset), "facets": _facets(dataset.facets), "inputFacets": _facets(statistics)}


def _output(
    dataset: Dataset, columns: tuple[RowColumn, ...], rows: int | None, bytes_out: int | None
) -> dict[str, Any]:
    facets = dict(dataset.facets)
    # With a table for each topic, each has columns of its own.
    if columns and dataset.has_rows and dataset.topic is None:
        facets["schema"] = {"fields": [column.as_dict() for column in columns]}
    statistics: dict[str, Mapping[str, Any]] = {}
    if dataset.has_rows and rows is not None:
        statistics["outputStatistics"] = {"rowCount": rows} | ({} if bytes_out is None else {"size": bytes_out})
    return {**_names(dataset), "facets": _facets(facets), "outputFacets": _facets(statistics)}


def _names(dataset: Dataset) -> dict[str, str]:
    return {"namespace": dataset.namespace, "name": dataset.name}


def _facets(facets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: {"_producer": producer(), "_schemaURL": SCHEMAS[name], **facet} for name, facet in facets.items()}


def producer() -> str:
    """Return the URI that says who has made an event."""
    return f"urn:lakefeed:{_version('lakefeed')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
