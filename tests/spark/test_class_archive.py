"""``lakefeed jars archive`` writes an archive of classes without servers, and the next JVM loads classes from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakefeed.clients.spark.jars import cache_directory

SESSION = """
import lakefeed
from pathlib import Path
from pyspark import SparkContext
spark = lakefeed.session("archive", master="local[1]", log_file="spark.log")
assert spark.range(10).count() == 10
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps")
print(sorted({line.split()[-1] for line in maps.read_text().splitlines() if "/classes/" in line}))
"""


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    known = {"LAKEFEED_CACHE": str(folder / "cache"), "LAKEFEED_JARS": str(cache_directory() / "jars")}
    known["LAKEFEED_CLASS_ARCHIVE"] = ""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **known}, capture_output=True, text=True)


@pytest.mark.slow
def test_jars_archive_needs_no_server_and_the_next_session_reads_the_archive(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "lakefeed.cli", "jars", "archive", "--output", "json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    [archive] = (tmp_path / "cache" / "classes").iterdir()
    assert (made["path"], made["bytes"]) == (str(archive), archive.stat().st_size)
    assert python(tmp_path, "-c", SESSION).stdout == f"['{archive}']\n"
    # The archive has the classes that a feed loads, with those of Kafka's and S3's clients, Iceberg and lakefeed.
    names = archive.read_bytes()
    for name in (b"KafkaConsumer", b"S3AFileSystem", b"S3FileIO", b"ParquetFileWriter", b"MicroBatchExecution"):
        assert name in names, name


@pytest.mark.slow
def test_an_archive_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "classes").write_text("a file where the folder belongs")
    done = python(tmp_path, "-m", "lakefeed.cli", "jars", "archive")
    assert done.returncode == 1
    assert "the JVM has written no archive" in done.stderr
    assert "Traceback" not in done.stderr
