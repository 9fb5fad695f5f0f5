"""A pyiceberg catalog in a local folder, whose tables tests write without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    from pyiceberg.catalog.sql import SqlCatalog

    opened = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    opened.create_namespace("web")
    try:
        yield opened
    finally:
        opened.engine.dispose()
