"""Checks without Spark whether a transform is that of the last start: its text, and the Python files that it names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from lakefeed.config.models import PipelineConfig


def keeps_no_state(config: PipelineConfig) -> bool:
    """Whether the pipeline file alone says that the query keeps nothing from batch to batch."""
    kafka = config.source.kafka
    copies = kafka is not None and kafka.deduplicate
    return config.transform is None and config.source.numbered is not None and not copies


def transform_id(config: PipelineConfig, *, folder: Path | None) -> str | None:
    """What a transform is known by; None where the pipeline file alone says that there is no state.

    Two transforms with the same id keep the same state. A function in Python may import others, whose change is not
    seen here: the next start sees it.

    Args:
        config: the pipeline.
        folder: where the pipeline file is; Python functions are looked for there.
    """
    if keeps_no_state(config):
        return None
    found: dict[str, Any] = {"deduplicate": config.source.kafka is not None and config.source.kafka.deduplicate}
    if (transform := config.transform) is not None:
        # Options of static tables hold no state, and may hold secrets: so may texts among a function's options.
        found |= transform.model_dump(exclude={"tables": {"__all__": {"options"}}, "steps": {"__all__": {"options"}}})
        for name, step in transform.all_steps.items():
            plain = {key: value for key, value in step.options.items() if not isinstance(value, str)}
            found[f"{name}."] = [plain, _source(step.python, folder)]
    text = json.dumps(found, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source(function: str | None, folder: Path | None) -> str | None:
    if function is None or folder is None:
        return None
    module = folder.joinpath(*function.partition(":")[0].split("."))
    for file in (module.with_suffix(".py"), module / "__init__.py"):
        if file.is_file():
            return hashlib.sha256(file.read_bytes()).hexdigest()
    return None
