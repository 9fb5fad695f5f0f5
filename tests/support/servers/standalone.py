"""Run a Spark standalone cluster of processes: a master, and workers that have only Spark and a bare Python."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from lakefeed_local.part import choose_free
from tests.support import guardian
from tests.support.servers.process import wait_for

SECRET = "the-secret-of-the-cluster"
DEPLOY = "org.apache.spark.deploy"


@dataclass
class Standalone:
    """The cluster's processes; a worker and everything that it started form a process group."""

    folder: Path
    port: int = field(default_factory=lambda: choose_free(avoid=()))
    web_port: int = field(default_factory=lambda: choose_free(avoid=()))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def python(self) -> Path:
        """The only Python of the workers; it has no packages."""
        return self.folder / "python" / "bin" / "python3"

    def state(self) -> dict[str, Any]:
        """Return the master's report of workers, applications and drivers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def start_master(self) -> None:
        self._start("master", f"{DEPLOY}.master.Master", "--port", str(self.port), "--webui-port", str(self.web_port))

    def start_worker(self, name: str, *, cores: int = 1) -> None:
        sizes = ["--cores", str(cores), "--memory", "2g", "--webui-port", "0"]
        self._start(name, f"{DEPLOY}.worker.Worker", *sizes, "--work-dir", str(self.folder / name), self.master)

    def kill_worker(self, name: str) -> None:
        """Send SIGKILL to a worker, its executors and drivers at the same moment, as if its machine were lost."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def pids_of(self, text: str) -> list[int]:
        """Return the cluster's processes whose command line contains the text."""
        groups = {process.pid for process in self.processes.values()}
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if text in (entry / "cmdline").read_text(errors="replace") and os.getpgid(int(entry.name)) in groups:
                    found.append(int(entry.name))
        return found

    def logs(self) -> str:
        files = [path for name in ("stdout", "stderr") for path in sorted(self.folder.rglob(name))]
        return "\n".join(f"--- {path}\n{path.read_text()[-4000:]}" for path in files)

    def wait_for(self, what: str, holds: Callable[[], object], *, seconds: float = 120) -> None:
        wait_for(what, holds, logs=self.logs, seconds=seconds)

    def _start(self, name: str, main: str, *options: str) -> None:
        settings = self.folder / "cluster.properties"
        arguments = [main, "--host", "127.0.0.1", "--properties-file", str(settings), *options]
        java = Path(shutil.which("java") or "java").parent
        # The processes must not see the test's environment: no keys, no packages, no lakefeed.
        environment = {
            "PATH": os.pathsep.join([str(self.python.parent), str(java), "/usr/bin", "/bin"]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "300m",
            **{name: os.environ[name] for name in ("JAVA_HOME", "JDK_JAVA_OPTIONS") if name in os.environ},
            **guardian.mark(),
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [Path(pyspark.__file__).parent / "bin" / "spark-class", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def standalone(folder: Path, *, workers: int = 2, cores: int = 1) -> Iterator[Standalone]:
    """Run a cluster whose processes authenticate by a shared secret and encrypt their traffic."""
    venv.create(folder / "python")
    cluster = Standalone(folder)
    alone = subprocess.run([cluster.python, "-c", "import lakefeed"], capture_output=True, text=True, check=False)
    assert "No module named 'lakefeed'" in alone.stderr
    assert str(sys.prefix) not in str(cluster.python)
    (folder / "cluster.properties").write_text(
        f"spark.authenticate true\nspark.network.crypto.enabled true\nspark.authenticate.secret {SECRET}\n"
    )
    names = [f"worker{number}" for number in range(workers)]
    try:
        cluster.start_master()
        for name in names:
            cluster.start_worker(name, cores=cores)
        cluster.wait_for("the workers", lambda: cluster.state()["aliveworkers"] == workers)
        yield cluster
    finally:
        for process in cluster.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
