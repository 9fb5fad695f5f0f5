"""Run Apicurio Registry 3.3, which serves a REST catalog of Iceberg tables, on a database in memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakefeed_local.part import LOOPBACK, choose_free
from lakefeed_local.servers import unpack_registry
from tests.support.servers.java import newer_java
from tests.support.servers.process import answers, running


@contextmanager
def apicurio_catalog(folder: Path, *, warehouse: str) -> Iterator[str]:
    """Run the server until the block ends, with its log in ``folder``; yield the catalog's address."""
    port = choose_free(avoid=())
    url = f"http://{LOOPBACK}:{port}/apis/iceberg"
    settings = {
        "APICURIO_STORAGE_KIND": "sql",
        "APICURIO_STORAGE_SQL_KIND": "h2",
        "APICURIO_DATASOURCE_URL": "jdbc:h2:mem:registry",
        "APICURIO_FEATURES_EXPERIMENTAL_ENABLED": "true",
        "APICURIO_ICEBERG_ENABLED": "true",
        "APICURIO_ICEBERG_WAREHOUSE": warehouse,
        "QUARKUS_HTTP_HOST": LOOPBACK,
        "QUARKUS_HTTP_PORT": str(port),
    }
    options = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    program = unpack_registry("test-apicurio-3.3") / "quarkus-run.jar"
    command = [str(newer_java()), *options, "-jar", str(program)]
    with running(
        command,
        log=folder / "apicurio.log",
        ready=lambda: answers(f"{url}/v1/config"),
        environment={**os.environ, **settings},
    ):
        yield url
