"""A JVM with Spark's and lakefeed's classes but without a Spark session: it decodes a few records for people.

It starts in a second; a session takes several. Python calls it through Py4J, like PySpark's own JVM.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from lakefeed.clients.spark import driver_jvm, jars, jvm
from lakefeed.errors import MissingExtra, WorldError
from lakefeed.lazy import SparkSession

MEMORY = "1g"
# Spark's classes need packages that Java 17 hides, as in a session.
_OPENED = (
    "lang",
    "lang.invoke",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_OPTIONS = (
    f"-Xmx{MEMORY}",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # The second compiler does not pay off within seconds.
    "-Duser.timezone=UTC",
    "-Dlog4j2.level=ERROR",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("sun.nio.ch", "sun.nio.cs", "sun.security.action")),
)


@contextmanager
def plain_jvm(*, log_file: Path) -> Iterator[SparkSession]:
    """Start a JVM, and end it with the block.

    The yielded object only has a session's ``_jvm`` and its time zone setting, which is UTC: enough for
    ``resolve_decoder`` and ``decoder_options``.

    Raises:
        MissingExtra: PySpark, which has these jars, is not installed.
        JavaError: there is no Java, or Spark does not run on its version.
    """
    java = driver_jvm.require_java()
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtra.of("pyspark", "spark", "decoding records")
    from py4j.java_gateway import GatewayParameters, JavaGateway

    paths = [jvm.jar(), str(Path(spec.origin).parent / "jars" / "*"), *jars.fetch(["spark"])]
    command = [str(java), *_OPTIONS, "-cp", os.pathsep.join(map(str, paths)), "py4j.GatewayServer"]
    with driver_jvm.private_log(log_file) as log:
        # In a process session of its own, so that Ctrl-C does not reach it; it ends when its standard input is closed.
        process = subprocess.Popen(
            [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        port, token = process.stdout.readline().strip(), process.stdout.readline().strip()
        if not port.isdigit() or not token:
            raise WorldError(
                "the JVM that decodes records ended as soon as it was started",
                where=str(log_file),
                hint="read the log; lakefeed local doctor examines this machine",
            )
        parameters = GatewayParameters(port=int(port), auth_token=token.decode(), auto_convert=True)
        gateway = JavaGateway(gateway_parameters=parameters)
        stand_in: Any = SimpleNamespace(_jvm=gateway.jvm, conf=_TimeZone())
        try:
            yield cast("SparkSession", stand_in)
        finally:
            gateway.close()
    finally:
        process.kill()
        process.communicate()


class _TimeZone:
    """The settings of a session: only the one setting that the decoders read."""

    def get(self, name: str) -> str:
        """Return the session's time zone."""
        assert name == "spark.sql.session.timeZone", name
        return "UTC"
