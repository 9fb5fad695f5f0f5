"""The Delta sink passes lakefeed's contract suite for sinks, on a local folder."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed_testing.sink_contract import SinkContract


@pytest.mark.quick
class TestDelta(SinkContract):
    @pytest.fixture
    def spark(self, spark: SparkSession) -> SparkSession:
        return spark

    def block(self, folder: Path) -> dict[str, Any]:
        return {"delta": {"path": str(folder / "table")}}
