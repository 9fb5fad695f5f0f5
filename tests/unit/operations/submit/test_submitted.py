"""The program of the application jar, before it has imported anything of lakefeed."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from lakefeed.cli import submitted

HERE = {
    "pipeline": "pipeline.yaml",
    "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
    "system": f"{platform.system()} {platform.machine()}",
    "spark": ".".join(pyspark.__version__.split(".")[:2]),
}


@pytest.mark.parametrize(("part", "built"), [("python", "3.9"), ("system", "Linux mips"), ("spark", "3.5")])
def test_a_driver_on_another_platform_ends_before_the_start(tmp_path: Path, part: str, built: str) -> None:
    shutil.copy(str(submitted.__file__), tmp_path / "main.py")
    (tmp_path / "application.json").write_text(json.dumps({**HERE, part: built}))
    done = subprocess.run([sys.executable, tmp_path / "main.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"the driver's {part} is {HERE[part]}" in done.stderr
    assert f"the application jar is for {built}" in done.stderr
    assert "set spark.pyspark.python to a Python of that version" in done.stderr
