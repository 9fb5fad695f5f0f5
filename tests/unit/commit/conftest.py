"""An Iceberg catalog in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    opened = load_catalog("c", **properties)
    opened.create_namespace("ns")
    yield opened
    opened.close()
