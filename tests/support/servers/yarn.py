"""Run YARN as processes: a ResourceManager, and a NodeManager whose containers have only Spark and a bare Python."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from lakefeed.clients.spark import jars
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed_local.part import LOOPBACK, choose_free
from tests.support import guardian
from tests.support.servers.process import wait_for

SERVER = "org.apache.hadoop.yarn.server"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
# The memory of the largest container.
MEMORY_MB = 4096
LOGGING = """
rootLogger = info, out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
"""


@dataclass
class Yarn:
    """A cluster of one node, and operations on its containers."""

    folder: Path
    web_port: int = field(default_factory=lambda: choose_free(avoid=()))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def configuration(self) -> Path:
        """The folder for clients' ``HADOOP_CONF_DIR``."""
        return self.folder / "conf"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of clients."""
        return {"HADOOP_CONF_DIR": str(self.configuration)}

    def settings(self, **own: str) -> dict[str, str]:
        """Return the block ``spark`` of a pipeline file; its containers are so small that the node runs four."""
        return {
            "spark.yarn.am.memory": "512m",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "700m",
            "spark.executor.instances": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.pyspark.python": str(self.python),
            # Without this setting, each application would copy 400 MB of Spark's jars to the node.
            "spark.yarn.jars": f"local:{SPARK_JARS}/*",
            **own,
        }

    @property
    def python(self) -> Path:
        """The node's only Python; it has no packages."""
        return self.folder / "python" / "bin" / "python3"

    @property
    def local(self) -> Path:
        """The node's folder for containers' files, including their working directories."""
        return self.folder / "local"

    @property
    def staging(self) -> Path:
        """The folder for applications' files, from which the node copies the files."""
        return self.folder / "staging"

    def has_node(self) -> bool:
        """Check that the node runs; with PySpark's jars, the JSON keys are names of YARN's Java classes."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.web_port}/ws/v1/cluster/nodes", timeout=5) as answer:
            return [node["state"] for node in json.load(answer)["nodes"]] == ["RUNNING"]

    def outcome(self, name: str) -> tuple[str, str] | None:
        """Return an application's last state and final state from the ResourceManager's summary; None while it runs."""
        log = (self.folder / "resourcemanager.log").read_text()
        found = re.search(rf"\bappId=\w+,name={re.escape(name)},.*\bstate=(\w+),.*\bfinalStatus=(\w+)", log)
        return None if found is None else (found[1], found[2])

    def pids_of(self, text: str) -> list[int]:
        """Return the containers' Java processes whose command line contains the text."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                program = Path(os.readlink(entry / "exe")).name
                in_container = Path(os.readlink(entry / "cwd")).is_relative_to(self.local)
                if in_container and program == "java" and text in (entry / "cmdline").read_text(errors="replace"):
                    found.append(int(entry.name))
        return found

    def logs(self) -> str:
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-4000:]}" for path in self.log_files())

    def log_files(self) -> list[Path]:
        """Return the log files of the daemons and the containers."""
        return [*self.folder.glob("*.log"), *sorted((self.folder / "logs").rglob("std*"))]

    def wait_for(self, what: str, holds: Callable[[], object], *, seconds: float = 120) -> None:
        wait_for(what, holds, logs=self.logs, seconds=seconds)

    def wait_for_success(self, name: str) -> None:
        """Wait until YARN reports that the application succeeded."""
        self.wait_for("the application's end", lambda: self.outcome(name))
        assert self.outcome(name) == ("FINISHED", "SUCCEEDED"), self.logs()

    def configure(self) -> None:
        """Write the configuration of the daemons and their clients."""
        taken: set[int] = {self.web_port}
        addresses = {}
        for name in ("", ".scheduler", ".resource-tracker", ".admin"):
            port = choose_free(avoid=taken)
            taken.add(port)
            addresses[f"yarn.resourcemanager{name}.address"] = f"{LOOPBACK}:{port}"
        site = {
            **addresses,
            "yarn.resourcemanager.hostname": LOOPBACK,
            "yarn.resourcemanager.webapp.address": f"{LOOPBACK}:{self.web_port}",
            "yarn.nodemanager.hostname": LOOPBACK,
            "yarn.nodemanager.address": f"{LOOPBACK}:0",
            "yarn.nodemanager.localizer.address": f"{LOOPBACK}:0",
            "yarn.nodemanager.webapp.address": f"{LOOPBACK}:0",
            "yarn.nodemanager.local-dirs": str(self.local),
            "yarn.nodemanager.log-dirs": str(self.folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": str(MEMORY_MB),
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.scheduler.maximum-allocation-mb": str(MEMORY_MB),
            # Disable YARN's checks of memory and disk, which other processes use, too, so that the checks would fail at
            # random.
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            # Keep the containers' files for a while, because a test inspects them.
            "yarn.nodemanager.delete.debug-delay-sec": "3600",
        }
        queues = {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            # The node is small, so one application's master may use the whole queue.
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
        }
        self.configuration.mkdir()
        (self.folder / "log4j2.properties").write_text(LOGGING)
        _write(self.configuration / "core-site.xml", {"fs.defaultFS": self.staging.as_uri()})
        _write(self.configuration / "yarn-site.xml", site)
        _write(self.configuration / "capacity-scheduler.xml", queues)

    def start(self, name: str, main: str) -> None:
        """Start a daemon without the test's environment: no keys, no packages, no lakefeed."""
        java = require_java().resolve()
        own = [*jars.fetch(["test-yarn"]), SPARK_JARS / "*"]
        command: list[str | Path] = [
            java,
            "-Xmx384m",
            "-XX:TieredStopAtLevel=1",
            "-Djava.net.preferIPv4Stack=true",
            # Guice creates its classes by reflection, which Java must allow.
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join([str(self.configuration), *map(str, own)]),
            f"{SERVER}.{main}",
        ]
        environment = {
            "PATH": os.pathsep.join([str(self.python.parent), "/usr/bin", "/bin"]),
            # The start script of a container calls {{JAVA_HOME}}/bin/java, so containers need this variable.
            "JAVA_HOME": str(java.parent.parent),
            **guardian.mark(),
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                list(map(str, command)),
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        """End the daemons first, because they would restart containers; then end the containers' sessions."""
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        for pid in self.pids_of(""):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """Run YARN in the version of PySpark's Hadoop, with a local folder instead of HDFS."""
    venv.create(folder / "python")
    cluster = Yarn(folder)
    alone = subprocess.run([cluster.python, "-c", "import lakefeed"], capture_output=True, text=True, check=False)
    assert "No module named 'lakefeed'" in alone.stderr
    assert str(sys.prefix) not in str(cluster.python)
    cluster.configure()
    try:
        cluster.start("resourcemanager", "resourcemanager.ResourceManager")
        cluster.start("nodemanager", "nodemanager.NodeManager")
        cluster.wait_for("the node", cluster.has_node)
        yield cluster
    finally:
        cluster.end()


def _write(file: Path, properties: Mapping[str, str]) -> None:
    lines = [
        f"  <property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
        for key, value in properties.items()
    ]
    file.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
