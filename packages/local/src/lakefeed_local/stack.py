"""Start and stop the local stack: real servers on this machine, without containers, root or fixed ports."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from lakefeed.clients.environment import StackEnvironment, default_home
from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.clients.spark import jars
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed.errors import ConfigError
from lakefeed_local.home import Home, Memory, write_private
from lakefeed_local.part import LOOPBACK, Part, PartStatus, Progress, StartStep, choose_free, is_free, owner_of, taken
from lakefeed_local.servers import BUCKET, DEFAULT_STORE, REGION, STORES, Kafka, RegistryServer, Store, store_named


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Addresses and keys with which a client uses the local stack.

    The registry's URL leads to its Confluent-compatible API. The store accepts path-style requests. The catalog's URL
    is ``jdbc:sqlite:<file>``.
    """

    bootstrap_servers: str
    schema_registry_url: str
    s3_endpoint: str
    region: str
    access_key: str
    secret_key: SecretStr
    bucket: str
    catalog_uri: str
    warehouse: str

    @property
    def catalog_file(self) -> Path:
        return Path(self.catalog_uri.removeprefix("jdbc:sqlite:"))

    def as_environment(self) -> dict[str, str]:
        """Return the variables that lakefeed reads, with the S3 secret; pass them to child processes, not to logs."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "SCHEMA_REGISTRY_URL": self.schema_registry_url,
            "AWS_ENDPOINT_URL_S3": self.s3_endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key.get_secret_value(),
            "AWS_REGION": self.region,
            "LAKEFEED_CATALOG_URI": self.catalog_uri,
            "LAKEFEED_WAREHOUSE": self.warehouse,
        }


class Stack:
    """Kafka, Schema Registry, S3 store and Iceberg catalog in one directory.

    Args:
        home: the directory; default ``LAKEFEED_HOME`` or ``~/.local/share/lakefeed``.
        store: ``s3proxy``, ``minio`` or ``versitygw``; default: the store of the existing directory, or s3proxy.
        ports: the ports of ``kafka``, ``registry`` and ``store``; default: the ports of the last start, else free
            ports.

    Raises:
        ConfigError: the store does not exist, or a port is given twice.
    """

    def __init__(
        self, home: Path | None = None, *, store: str | None = None, ports: Mapping[str, int] | None = None
    ) -> None:
        if store is not None:
            store_named(store)
        if ports and len(set(ports.values())) < len(ports):
            raise ConfigError(
                "two servers of the local stack cannot have the same port", hint="choose another port for one server"
            )
        self.home = Home((home or default_home()).expanduser().absolute())
        self._store = store
        self._requested_ports = dict(ports or {})

    def up(self, *, progress: Progress | None = None) -> Endpoints:
        """Start the servers that do not run, and return when all servers answer.

        If a server does not start, the servers that this call has started are stopped again.

        Raises:
            JavaError: there is no suitable Java.
            DownloadError: a jar or a store's source cannot be fetched.
            PortTaken: another process listens on a port of ``ports``.
            ConfigError: the directory has another store, or a running server has another port.
            Unreachable: a server does not start.
        """
        report = progress or (lambda _step: None)
        require_java()
        with self.home.locked():
            memory = self._memory()
            running = [part for part in self._parts(memory) if part.serves()]
            for part in running:
                self._refuse_other_ports(part)
                report(StartStep(part=part.name, state="already up", detail=part.address))
            missing = {part.name for part in self._parts(memory)} - {part.name for part in running}
            if missing:
                memory = self._with_ports(memory, missing, report)
                self.home.remember(memory)
                self._start([part for part in self._parts(memory) if part.name in missing], report)
            make_catalog(self.home.catalog_file)
            self._publish(memory)
            return self._endpoints(memory)

    def down(self, *, erase: bool = False, progress: Progress | None = None) -> None:
        """Stop all servers; ``erase`` also removes topics, schemas, objects, catalog, logs and credentials."""
        if not self.home.is_ours():
            return
        with self.home.locked():
            self.home.environment_file.unlink(missing_ok=True)
            possible = self._parts(Memory(store=DEFAULT_STORE, cluster_id="", ports={}), *STORES.values())
            self._stop(possible, progress or (lambda _step: None))
            if erase:
                self.home.erase()

    def status(self) -> list[PartStatus]:
        """Return the state of all servers; an empty list before the first ``up``."""
        memory = self.home.recall()
        return [part.status() for part in self._parts(memory)] if memory else []

    def endpoints(self) -> Endpoints:
        """Return the endpoints of a running or stopped stack; raise ConfigError if it was never started."""
        memory = self.home.recall()
        if memory is None:
            raise ConfigError("there is no local stack here yet", where=str(self.home.root), hint="lakefeed local up")
        return self._endpoints(memory)

    def _publish(self, memory: Memory) -> None:
        """Write the file in which later commands and pipelines find the endpoints of the running stack."""
        processes = [process for part in self._parts(memory) if (process := part.process()) is not None]
        published = StackEnvironment(
            environment=self._endpoints(memory).as_environment(),
            processes={process.pid: process.began for process in processes},
        )
        write_private(self.home.environment_file, published.model_dump_json(indent=2) + "\n")

    def _memory(self) -> Memory:
        """Return the values stored by an earlier ``up``, or initial values."""
        memory = self.home.recall()
        if memory is None:
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            return Memory(store=self._store or DEFAULT_STORE, cluster_id=cluster_id, ports={})
        if self._store is not None and self._store != memory.store:
            raise ConfigError(
                f"this local stack has its objects in {memory.store}, not in {self._store}",
                where=str(self.home.root),
                hint="choose another directory with --home, or erase the stack: lakefeed local down --erase",
            )
        return memory

    def _parts(self, memory: Memory, *stores: type[Store]) -> list[Part]:
        """Return Kafka, the registry and the given stores; without ``stores``, the store that ``memory`` names."""
        keys = self.home.credentials()
        classes: list[type[Part]] = [Kafka, RegistryServer, *(stores or [store_named(memory.store)])]
        return [
            part(home=self.home, ports=memory.ports, credentials=keys, cluster_id=memory.cluster_id) for part in classes
        ]

    def _refuse_other_ports(self, part: Part) -> None:
        for name in part.port_names:
            requested, actual = self._requested_ports.get(name), part.ports[name]
            if requested not in (None, actual):
                raise ConfigError(
                    f"{part.name} already runs on port {actual}, not on {requested}",
                    where=str(self.home.root),
                    hint="first stop the local stack: lakefeed local down",
                )

    def _with_ports(self, memory: Memory, missing: set[str], report: Progress) -> Memory:
        """Choose the ports of the servers to start: the requested port, else the remembered one, else a free one."""
        ports = dict(memory.ports)
        for part in self._parts(memory):
            if part.name not in missing:
                continue
            # Before the check of its ports, stop a server that does not answer, because it still uses them.
            if part.stop():
                report(StartStep(part=part.name, state="restarting", detail="it runs, but does not answer"))
            for name in part.port_names:
                requested, remembered = self._requested_ports.get(name), memory.ports.get(name)
                if requested is not None:
                    if not is_free(requested):
                        raise taken(requested, part=name)
                    ports[name] = requested
                elif remembered is None or not is_free(remembered):
                    ports[name] = choose_free(avoid=[*ports.values(), *self._requested_ports.values()])
                    if remembered is not None:
                        owner = owner_of(remembered) or "another process"
                        detail = f"port {remembered} is now {owner}'s; using {ports[name]}"
                        report(StartStep(part=part.name, state="moved", detail=detail))
        return memory.model_copy(update={"ports": ports})

    def _start(self, parts: Sequence[Part], report: Progress) -> None:
        jars.fetch({group for part in parts for group in part.jar_groups})
        for part in parts:
            part.build(report)
        cancelled = threading.Event()
        with ThreadPoolExecutor(len(parts)) as pool:
            futures = [pool.submit(part.start, progress=report, cancelled=cancelled) for part in parts]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:  # Even after Ctrl-C, the servers that this call has started must not keep running.
                cancelled.set()
                pool.shutdown(wait=True)
                self._stop(parts, report)
                raise

    @staticmethod
    def _stop(parts: Sequence[Part], report: Progress) -> None:
        with ThreadPoolExecutor(len(parts)) as pool:
            for part, was_running in zip(parts, pool.map(lambda part: part.stop(), parts), strict=True):
                if was_running:
                    report(StartStep(part=part.name, state="stopped"))

    def _endpoints(self, memory: Memory) -> Endpoints:
        credentials = self.home.credentials()
        return Endpoints(
            bootstrap_servers=f"{LOOPBACK}:{memory.ports['kafka']}",
            schema_registry_url=f"http://{LOOPBACK}:{memory.ports['registry']}/apis/ccompat/v7",
            s3_endpoint=f"http://{LOOPBACK}:{memory.ports['store']}",
            region=REGION,
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            bucket=BUCKET,
            catalog_uri=f"jdbc:sqlite:{self.home.catalog_file}",
            warehouse=f"s3://{BUCKET}/warehouse",
        )
