"""Apicurio Registry with its Confluent-compatible API, on an H2 file."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from lakefeed.clients.spark import jars
from lakefeed.clients.spark.java import require_java
from lakefeed.local.home import write_private
from lakefeed.local.part import NotReady, Part, ask

_MAIN_JAR = "apicurio-registry-app-*-runner.jar"


class RegistryServer(Part):
    """The Schema Registry.

    Two of its defaults are not for us. It checks no compatibility, so BACKWARD is set globally. And H2 writes
    half a second late, so that a killed registry forgets schemas it has acknowledged and gives their ids to
    others; ``WRITE_DELAY=0`` ends that.
    """

    name = "registry"
    port_names = ("registry",)
    jar_groups = ("registry",)

    @property
    def url(self) -> str:
        """The API's root, for Confluent's clients."""
        return f"http://{self.address}/apis/ccompat/v7"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)
        settings = {
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": f"jdbc:h2:file:{self.data}/registry;WRITE_DELAY=0",
            "quarkus.http.host": self.address.split(":")[0],
            "quarkus.http.port": self.address.split(":")[1],
            "quarkus.http.access-log.enabled": "false",
        }
        write_private(self._properties, "".join(f"{name}={value}\n" for name, value in settings.items()))

    def command(self) -> list[str]:
        # The quick compiler only: it is up in half the time, and it gets few requests.
        options = (
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.net.preferIPv4Stack=true",
        )
        (main_jar,) = _unpacked().glob(_MAIN_JAR)
        return [str(require_java()), *options, "-jar", str(main_jar)]

    def environment(self) -> dict[str, str]:
        return {"QUARKUS_CONFIG_LOCATIONS": str(self._properties)}

    def check(self) -> None:
        ask(f"{self.url}/subjects")

    def finish(self) -> None:
        if self._compatibility_set.exists():  # From then on it is the user's to change.
            return
        requested = {"compatibility": "BACKWARD"}
        request = urllib.request.Request(  # noqa: S310 (our own server)
            f"{self.url}/config",
            data=json.dumps(requested).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method="PUT",
        )
        answer = json.loads(ask(request))
        if "BACKWARD" not in answer.values():
            raise NotReady(f"it does not take the compatibility BACKWARD: {answer}")
        self._compatibility_set.touch()

    @property
    def _compatibility_set(self) -> Path:
        return self.data / "compatibility-set"

    @property
    def _properties(self) -> Path:
        return self.around.home.settings / "registry.properties"


def _unpacked() -> Path:
    """The registry's directory in the cache, unpacked from the verified archive the first time."""
    (artifact,) = jars.read_lock().of(["registry"])
    target = jars.cache_directory() / "registry" / artifact.sha256[:16]
    if target.exists():
        return target
    (archive,) = jars.fetch(["registry"])
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".unpacking-"))
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        try:
            temporary.rename(target)
        except OSError:  # Another process was quicker; a full directory is never replaced.
            if not target.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target
