"""The program in an application jar checks the machine before it imports lakefeed."""

import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from lakefeed_deploy.spark_submit import submitted

HERE = {
    "pipeline": "pipeline.yaml",
    "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
    "system": f"{platform.system()} {platform.machine()}",
    "spark": ".".join(pyspark.__version__.split(".")[:2]),
}


@pytest.mark.parametrize(
    ("part", "built"),
    [
        ("python", "3.9"),
        pytest.param("system", "Linux mips", marks=pytest.mark.waits),
        pytest.param("spark", "3.5", marks=pytest.mark.waits),
    ],
)
def test_a_driver_on_another_platform_refuses_to_start(tmp_path: Path, part: str, built: str) -> None:
    shutil.copy(str(submitted.__file__), tmp_path / "main.py")
    (tmp_path / "application.json").write_text(json.dumps({**HERE, part: built}))
    done = subprocess.run([sys.executable, tmp_path / "main.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"the driver's {part} is {HERE[part]}" in done.stderr
    assert f"the application jar is for {built}" in done.stderr
    assert "set spark.pyspark.python to a Python of that version" in done.stderr


def test_a_supervised_driver_waits_longer_after_each_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "driver-20261123200000-0000"
    (folder / "lakefeed-application").mkdir(parents=True)
    (folder / "lakefeed-application" / "application.json").write_text(json.dumps({**HERE, "python": "3.9"}))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(submitted, "__file__", str(folder / "lakefeed-application" / "main.py"))
    waits: list[float] = []
    # Replace the clock only in the module ``submitted``, because other threads of this process use it, too.
    clock = SimpleNamespace(sleep=waits.append, monotonic=time.monotonic)
    monkeypatch.setattr(submitted, "time", clock)
    # Hide the Spark session of other tests in this process, because the program would stop it.
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)

    def fail(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["main.py", *arguments, "--once"])
        with pytest.raises(SystemExit) as ended:
            submitted.main()
        assert ended.value.code == 2

    fail()
    assert waits == []
    for _ in range(7):
        fail(submitted.SUPERVISED)
    assert waits == [10, 20, 40, 80, 160, 300, 300]
    said = capsys.readouterr().err
    assert "the driver has failed 3 times in a row: it ends in 40 s" in said
    assert f"Client kill MASTER {folder.name}" in said

    # A driver that worked for ten minutes has recovered, so the next wait is short again.
    now = iter([0.0, 601.0])
    clock.monotonic = lambda: next(now)
    fail(submitted.SUPERVISED)
    assert waits[-1] == 10


@pytest.mark.waits
def test_a_supervised_driver_without_a_failure_does_not_wait(tmp_path: Path) -> None:
    shutil.copy(str(submitted.__file__), tmp_path / "main.py")
    (tmp_path / "application.json").write_text(json.dumps(HERE))
    command = [sys.executable, str(tmp_path / "main.py"), submitted.SUPERVISED, "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Run a pipeline: topics in, table out." in done.stdout
    assert not (tmp_path / "lakefeed-failures").exists()
