"""Start a JVM with the classes of Spark and lakefeed but without a Spark session, to show a few decoded records.

Such a JVM starts in a second, a session in several. Python calls the JVM through Py4J, as PySpark does.
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
# Packages that Java 17 hides and Spark's classes need; a session opens the same ones.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
)
_OPTIONS = (
    f"-Xmx{MEMORY}",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # Java's second compiler does not pay off within seconds.
    "-Duser.timezone=UTC",
    "-Dlog4j2.level=ERROR",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
)


@contextmanager
def plain_jvm(*, log_file: Path) -> Iterator[SparkSession]:
    """Yield access to a new JVM; the JVM ends when the block ends.

    The yielded object has only a session's ``_jvm`` and its time zone, UTC, which ``resolve_decoder`` and
    ``decoder_options`` need.

    Raises:
        MissingExtra: PySpark, which contains Spark's jars, is not installed.
        JavaError: there is no Java, or Spark does not support its version.
    """
    java = driver_jvm.require_java()
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtra.of("pyspark", "spark", "decoding records")
    from py4j.java_gateway import GatewayParameters, JavaGateway

    paths = [jvm.jar(), str(Path(spec.origin).parent / "jars" / "*"), *jars.fetch(["spark"])]
    command = [str(java), *_OPTIONS, "-cp", os.pathsep.join(map(str, paths)), "py4j.GatewayServer"]
    with driver_jvm.private_log(log_file) as log:
        # The JVM gets its own process group, so that Ctrl-C does not reach it. It ends when its standard input closes.
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
                "the JVM that decodes records ended during its start",
                where=str(log_file),
                hint="read the log; lakefeed local doctor checks this machine",
            )
        parameters = GatewayParameters(port=int(port), auth_token=token.decode(), auto_convert=True)
        gateway = JavaGateway(gateway_parameters=parameters)
        settings = {"spark.sql.session.timeZone": "UTC"}
        stand_in: Any = SimpleNamespace(_jvm=gateway.jvm, conf=SimpleNamespace(get=settings.__getitem__))
        try:
            yield cast("SparkSession", stand_in)
        finally:
            gateway.close()
    finally:
        process.kill()
        process.communicate()
