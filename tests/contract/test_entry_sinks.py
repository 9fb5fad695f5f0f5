"""A sink of another package, which stores entries, passes the suite that lakefeed ships for such packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakefeed.sink_contract import SinkContract
from tests.support.sink_package import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(install(tmp_path_factory.mktemp("package"))))
        yield
    for name in [name for name in sys.modules if name.startswith("lakefeed_sqlite_archive")]:
        del sys.modules[name]


@pytest.mark.quick
class TestSqliteArchive(SinkContract):
    @pytest.fixture
    def spark(self, spark: SparkSession) -> SparkSession:
        return spark

    def block(self, folder: Path) -> dict[str, Any]:
        return {"sqlite_archive": {"path": str(folder / "rows.db")}}
