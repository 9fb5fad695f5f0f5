"""The traces of a feed's runs: in the user's own folder, and beside its checkpoint where the pipeline says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.monitor.runs.store import LocalRuns
from lakefeed.operations.live_status import own_path


def local_runs(config: PipelineConfig) -> LocalRuns | None:
    """Return the traces of a feed on this machine; None if none are kept, or the user has no home."""
    path = own_path("runs", config)
    if path is None or config.runs.keep == "no":
        return None
    return LocalRuns(Path(path).with_suffix(""), most=config.runs.most, most_mb=config.runs.most_mb)


def traces_of(config: PipelineConfig, *, connections: Connections) -> list[dict[str, Any]]:
    """Return the traces of a feed, each once."""
    runs = local_runs(config)
    return runs.traces() if runs is not None else []
