"""A JVM writes an archive of its classes on request, and the next one maps it."""

from __future__ import annotations

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
spark = lakefeed.session("archive", master="local[1]", log_file=Path("spark.log"))
assert spark.range(10).count() == 10
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps")
print(sorted({line.split()[-1] for line in maps.read_text().splitlines() if "/classes/" in line}))
"""


def run(folder: Path, **environment: str) -> str:
    known = {"LAKEFEED_CACHE": str(folder / "cache"), "LAKEFEED_JARS": str(cache_directory() / "jars"), **environment}
    done = subprocess.run(
        [sys.executable, "-c", SESSION], cwd=folder, env={**os.environ, **known}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_jvm_maps_the_classes_that_an_earlier_one_has_written(tmp_path: Path) -> None:
    assert run(tmp_path, LAKEFEED_CLASS_ARCHIVE="write") == "[]\n"
    [archive] = (tmp_path / "cache" / "classes").iterdir()
    assert archive.suffix == ".jsa"
    assert run(tmp_path) == f"['{archive}']\n"
    assert run(tmp_path, LAKEFEED_CLASS_ARCHIVE="off") == "[]\n"
    # Not what the jars' classes are any more: left out by the JVM, which says nothing on the command's own stdout.
    archive.chmod(0o600)
    archive.write_bytes(b"broken")
    assert run(tmp_path) == "[]\n"
