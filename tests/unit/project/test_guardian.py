"""A test process that is killed leaves no server behind; ``test_interrupted_run.py`` kills whole test runs."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.clock import until

ROOT = Path(__file__).parents[3]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


# The test kills this program, as a pytest worker may be killed, before it can stop its server.
CHILD = """
import sys, time
from pathlib import Path
from lakefeed_local.part import start_detached
from tests.support import guardian
here = Path(sys.argv[1])
guardian.watch(0.2)
server = start_detached(["/bin/sleep", "600"], log=here / "log", pid_file=here / "pid", cwd=here, environment={})
print(server.pid, flush=True)
time.sleep(600)
"""


def test_no_server_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stdout is not None
        server = int(child.stdout.readline())
        child.kill()
        child.wait(30)
    until(lambda: not alive(server), seconds=20)
