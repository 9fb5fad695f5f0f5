"""Open a table whose catalog names a metadata file that does not exist."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Catalog, Connections
from lakefeed.errors import ResourceMissing, WorldError
from lakefeed.operations.preflight.connect import _table_problems
from tests.support.pipeline_text import feed_config


@pytest.fixture
def moved(tmp_path: Path) -> Connections:
    """Return the catalog of a folder that was moved after its table was created."""
    before, now = tmp_path / "lake", tmp_path / "moved lake"
    before.mkdir()
    made = SqlCatalog("lake", uri=f"sqlite:///{before}/catalog.db", warehouse=f"file://{before}")
    made.create_namespace("web")
    made.create_table("web.hits", Schema(NestedField(1, "id", LongType())))
    made.engine.dispose()
    before.rename(now)
    return Connections(catalogs={"lake": Catalog(uri=f"jdbc:sqlite:{now}/catalog.db", warehouse=f"file://{now}")})


def test_open_table_explains_a_missing_metadata_file(moved: Connections) -> None:
    with pytest.raises(WorldError, match="the table's metadata file, which the catalog names") as raised:
        open_table("lake.web.hits", connections=moved)
    # The error is not ResourceMissing, after which callers would create the table.
    assert not isinstance(raised.value, ResourceMissing)
    assert "lake.web.hits" in (raised.value.where or "")
    assert "absolute paths" in (raised.value.hint or "")


def test_the_check_finds_a_missing_metadata_file(moved: Connections) -> None:
    [problem] = _table_problems(feed_config(), moved)
    assert problem.key == "sink.iceberg.table"
    assert problem.severity == "error"
    assert "metadata file" in problem.what
