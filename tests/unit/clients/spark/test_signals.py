"""During its start, a command has no batch to finish, so a signal ends it."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed.clients.spark.signals import stop_on_signals
from tests.support.cli import COMMAND

PIPELINE = """
name: silent
source: {{kafka: {{bootstrap_servers: "{silent}", topics: [a]}}}}
decode: {{json: {{schema_ddl: "a INT"}}}}
sink: {{parquet: {{path: "s3a://lake/rows"}}}}
checkpoint: "s3a://lake/c"
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """Run a server that accepts connections and never answers; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def ended_by(number: signal.Signals, *command: str) -> tuple[int, str]:
    """Send the signal to a command after its first line of output; return its status and output."""
    process = subprocess.Popen(
        [*COMMAND, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "SCHEMA_REGISTRY_URL": "http://127.0.0.1:9"},
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert "starting" in first, first + process.communicate(timeout=60)[0]
    os.killpg(process.pid, number)
    rest, _ = process.communicate(timeout=60)
    return process.returncode, rest


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("run", signal.SIGTERM),
        pytest.param("run", signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("backfill", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("run", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("backfill", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_during_the_start_ends_the_command_with_status_0(
    command: str, number: signal.Signals, silent: str, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(silent=silent, folder=tmp_path))
    status, said = ended_by(number, command, str(file))
    assert status == 0, said
    assert said.strip() == "stopped at the start: the command has read and written nothing"


@pytest.mark.parametrize(
    "option", [["--exit-on-signal", "143"], pytest.param(["--exit-on-signal=143"], marks=pytest.mark.slow)]
)
def test_the_option_exit_on_signal_sets_the_exit_status(option: list[str], silent: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(silent=silent, folder=tmp_path))
    status, said = ended_by(signal.SIGTERM, "run", str(file), *option)
    assert status == 143, said


def test_a_second_ctrl_c_interrupts_a_run_that_is_stopping() -> None:
    said: list[str] = []
    with stop_on_signals(said.append) as stop:
        stop.set()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert said == ["stopping after the current batch; Ctrl-C again stops at once"]
