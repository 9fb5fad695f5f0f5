"""Start the driver's JVM: the error when the JVM does not start, and the permissions of its log."""

import stat
from pathlib import Path

import pytest

from lakefeed.clients.spark import driver_jvm
from lakefeed.errors import WorldError


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a Spark whose JVM exits immediately."""
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\necho 'Could not reserve enough space for the heap' >&2\nexit 3\n")
    submit.chmod(0o755)
    return tmp_path


def test_the_error_of_a_failed_start_quotes_the_end_of_the_log(spark_home: Path) -> None:
    log = spark_home / "logs" / "feed.log"
    with pytest.raises(WorldError, match="ended with status 3") as failed:
        driver_jvm.start({"spark.driver.memory": "999g"}, log_file=log)
    assert "Could not reserve enough space" in str(failed.value)
    assert failed.value.where == str(log)


def test_only_the_owner_can_read_a_log_even_if_the_log_existed_before(spark_home: Path) -> None:
    log = spark_home / "feed.log"
    log.write_text("from before\n")
    log.chmod(0o644)
    with pytest.raises(WorldError):
        driver_jvm.start({}, log_file=log)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert log.read_text().startswith("from before\n")
