"""After a signal to the process group, the driver still finishes its batch, and no JVM remains."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from lakefeed.clients.spark.session import settings
from tests.support.groups import assert_gone, members

CHILD = str(Path(__file__).parents[1] / "support" / "stop_child.py")
LONG = "1.5"
# This script slows down the call that creates the JVM's session, and sends itself Ctrl-C during the call.
INTERRUPTED_START = """
import os, signal, threading
from pyspark.sql import SparkSession
import lakefeed as lf
from lakefeed.clients.spark.signals import end_on_signals

make = SparkSession.__init__

def make_slowly(self, context, *arguments, **options):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    context._jvm.java.lang.Thread.sleep(30_000)
    make(self, context, *arguments, **options)

SparkSession.__init__ = make_slowly
end_on_signals()
try:
    lf.session("interrupted", master="local[1]", conf={"spark.driver.memory": "512m"})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
SUBMITTED = ("spark-submit", "spark-submit, its JVM alone")


@contextmanager
def child(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process in its own group; kill the group when the block ends."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.getcwd(), "PYSPARK_PYTHON": sys.executable},
        )
    try:
        yield process
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def said_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read the output of a process until a line begins with the text; return all lines read."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith(text):
            return lines
    raise AssertionError(lines)


def submitted() -> list[str]:
    conf = {**settings("stop", master="local[1]"), "spark.driver.memory": "512m"}
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    return [submit, *(f"--conf={key}={value}" for key, value in conf.items())]


@pytest.mark.parametrize(
    ("started_by", "number"),
    [
        ("python", signal.SIGTERM),
        pytest.param("python", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("python", signal.SIGHUP, marks=pytest.mark.slow),
        *(
            pytest.param(each, number, marks=pytest.mark.slow)
            for each in SUBMITTED
            for number in (signal.SIGTERM, signal.SIGINT)
        ),
    ],
)
def test_a_signal_to_the_group_finishes_the_batch_and_leaves_no_jvm(
    started_by: str, number: signal.Signals, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = [sys.executable] if started_by == "python" else submitted()
    with child([*command, CHILD, LONG], log) as process:
        said_until(process, "batch 0 begins")
        if started_by == SUBMITTED[1]:
            os.kill(process.pid, number)
        else:
            os.killpg(process.pid, number)
            if number == signal.SIGTERM:
                time.sleep(0.2)
                os.killpg(process.pid, number)  # Send a second signal, as the command ``timeout`` does.
        rest = process.communicate(timeout=120)[0].splitlines()
        assert process.returncode == 0, log.read_text()[-3000:]
        assert rest[0].startswith("stopping after the current batch")
        assert [each for each in rest[1:] if each.startswith(("batch", "done"))] == ["batch 0 ends with 3 rows", "done"]
        assert_gone(process.pid)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_run_immediately(tmp_path: Path) -> None:
    with child([sys.executable, CHILD, "60"], tmp_path / "log") as process:
        said_until(process, "batch 0 begins")
        os.killpg(process.pid, signal.SIGINT)
        said_until(process, "stopping")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode != 0
        assert_gone(process.pid)


def test_ctrl_c_while_spark_creates_the_session_is_not_reported_as_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with child([sys.executable, "-c", INTERRUPTED_START], log) as process:
        said = process.communicate(timeout=120)[0]
        assert (process.returncode, said.strip()) == (0, "interrupted"), log.read_text()[-3000:]
        # Without lakefeed's handling, Py4J logs a stack trace of the interrupted call.
        assert "KeyboardInterrupt" not in log.read_text()
        assert_gone(process.pid)


def test_a_jvm_ignores_signals_and_ends_when_its_python_process_ends(tmp_path: Path) -> None:
    """A Python process that gets SIGKILL cannot end its JVM, so the JVM must end by itself."""
    start = (
        "from lakefeed.clients.spark import driver_jvm; "
        "driver_jvm.start({'spark.driver.memory': '200m'}); print('up', flush=True)"
    )
    with child([sys.executable, "-c", f"{start}; import time; time.sleep(100)"], tmp_path / "log") as process:
        said_until(process, "up")
        (jvm,) = (each for each in members(process.pid) if not each.startswith(f"{process.pid} "))
        assert "java" in jvm
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(int(jvm.split()[0]), number)
        time.sleep(0.3)
        assert jvm in members(process.pid)
        process.kill()
        assert_gone(process.pid)
