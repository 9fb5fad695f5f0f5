"""The object stores to choose from. All speak S3; what they promise differs (see the documents)."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import ClassVar

from lakefeed.clients.s3_signature import signed_headers
from lakefeed.clients.spark import jars
from lakefeed.clients.spark.java import require_java
from lakefeed.errors import ConfigError
from lakefeed.local.endpoints import BUCKET, REGION
from lakefeed.local.go import GoProgram
from lakefeed.local.home import write_private
from lakefeed.local.part import NotReady, Part, ask
from lakefeed.local.report import Progress, StartStep

_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


class Store(Part):
    """What the stores have in common: one port, one bucket."""

    port_names = ("store",)

    @property
    def url(self) -> str:
        """The S3 endpoint."""
        return f"http://{self.address}"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def check(self) -> None:
        self._request("GET", "/")

    def finish(self) -> None:
        """Makes the bucket."""
        try:
            self._request("HEAD", f"/{BUCKET}")
        except NotReady:
            self._request("PUT", f"/{BUCKET}")

    def _request(self, method: str, path: str) -> None:
        url = self.url + path
        headers = signed_headers(url, keys=self.around.credentials, region=REGION, method=method)
        ask(urllib.request.Request(url, method=method, headers=headers))  # noqa: S310 (our own server)


class S3Proxy(Store):
    """The default: needs Java only. Objects are plain files, so `a` and `a/b` cannot both be keys."""

    name = "s3proxy"
    jar_groups = ("s3proxy",)

    def prepare(self) -> None:
        super().prepare()
        credentials = self.around.credentials
        settings = {
            "s3proxy.endpoint": self.url,
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": credentials.access_key,
            "s3proxy.credential": credentials.secret_key.get_secret_value(),
            "jclouds.provider": "filesystem",
            "jclouds.filesystem.basedir": str(self.data),
        }
        write_private(self._properties, "".join(f"{name}={value}\n" for name, value in settings.items()))
        write_private(self._logback, _LOGBACK)

    def command(self) -> list[str]:
        return [
            str(require_java()),
            "-Xmx384m",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlogback.configurationFile={self._logback}",
            "-cp",
            os.pathsep.join(map(str, jars.fetch(self.jar_groups))),
            "org.gaul.s3proxy.Main",
            "--properties",
            str(self._properties),
        ]

    @property
    def _properties(self) -> Path:
        return self.around.home.settings / "s3proxy.properties"

    @property
    def _logback(self) -> Path:
        return self.around.home.settings / "s3proxy-logback.xml"


class BuiltStore(Store):
    """A store that is built from source, once, which takes minutes."""

    program: ClassVar[GoProgram]

    def build(self, report: Progress) -> None:
        if not self.program.path.exists():
            log = self.around.home.log_of(f"{self.name}-build")
            report(StartStep(part=self.name, state="building", detail=f"takes some minutes, once; log {log}"))
            self.program.build(log=log)


class Minio(BuiltStore):
    """MinIO's last community source, from before its repository was archived."""

    name = "minio"
    program = GoProgram(name="minio", package="github.com/minio/minio", version="v0.0.0-20260212201848-7aac2a2c5b7c")

    def command(self) -> list[str]:
        return [str(self.program.path), "server", "--quiet", "--address", self.address, str(self.data)]

    def environment(self) -> dict[str, str]:
        credentials = self.around.credentials
        return {
            "MINIO_ROOT_USER": credentials.access_key,
            "MINIO_ROOT_PASSWORD": credentials.secret_key.get_secret_value(),
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            # No MINIO_REGION: with one, MinIO names it in every 404, and AWS's SDK then asks a second time.
        }


class VersityGateway(BuiltStore):
    """versitygw on a directory; requires a file system with extended attributes."""

    name = "versitygw"
    program = GoProgram(name="versitygw", package="github.com/versity/versitygw/cmd/versitygw", version="v1.8.0")

    def command(self) -> list[str]:
        return [str(self.program.path), "--port", self.address, "--quiet", "posix", str(self.data)]

    def environment(self) -> dict[str, str]:
        credentials = self.around.credentials
        return {
            "ROOT_ACCESS_KEY": credentials.access_key,
            "ROOT_SECRET_KEY": credentials.secret_key.get_secret_value(),
            "VGW_REGION": REGION,
        }


STORES: dict[str, type[Store]] = {store.name: store for store in (S3Proxy, Minio, VersityGateway)}

DEFAULT_STORE = S3Proxy.name


def store_named(name: str) -> type[Store]:
    """The store of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in STORES:
        raise ConfigError(f"there is no store named {name}", hint=f"the stores are: {', '.join(STORES)}")
    return STORES[name]
