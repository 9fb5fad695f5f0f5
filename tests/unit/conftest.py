"""Fixtures of the unit tests; they are quick, because they need nothing but Python, unless they have to wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefeed.config import trust
from lakefeed.config.loading.load import read
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem
from tests.support.pipeline_text import ENVIRONMENT, GOOD, Reader

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder: pytest hands over those of all folders."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("waits") is None:
            item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True)
def _authorities_of_one_test() -> Iterator[None]:
    """Keep the certificates that one test's pipeline declares from the connections of the next."""
    yield
    trust.forget()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """Open an Iceberg catalog in a folder."""
    from pyiceberg.catalog import load_catalog

    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    opened = load_catalog("c", **properties)
    opened.create_namespace("ns")
    yield opened
    opened.close()


@pytest.fixture
def reading(tmp_path: Path) -> Reader:
    """Read a text as ``p.yaml``; the problems name that file without its folder."""

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
