from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lakefeed.config.loading.load import read
from lakefeed.config.loading.problem import Problem
from lakefeed.config.models import PipelineConfig
from tests.unit.config.pipeline_text import ENVIRONMENT, GOOD, Reader


@pytest.fixture
def reading(tmp_path: Path) -> Reader:
    """Reads a text as ``p.yaml``; the problems name that file without its folder."""

    def of(
        text: str = GOOD,
        *,
        overrides: Sequence[str] = (),
        environment: Mapping[str, str] = ENVIRONMENT,
        replace: tuple[str, str] | None = None,
    ) -> tuple[PipelineConfig | None, list[Problem]]:
        if replace is not None:
            assert replace[0] in text
            text = text.replace(*replace)
        path = tmp_path / "p.yaml"
        path.write_text(text, "utf-8", newline="")
        found = read(path, overrides=overrides, environment=environment)
        return found.config, found.problems

    return of
