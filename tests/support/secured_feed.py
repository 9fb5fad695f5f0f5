"""Run a feed end to end over the secured servers; list the problems that the check finds after a change."""

import json
import secrets
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.loading.load import load
from lakefeed.operations.preflight.connect import preflight
from lakefeed.pipeline import Pipeline
from tests.support.cli import lakefeed
from tests.support.secured import Secured
from tests.support.servers.authority import Signed

ROWS = 3_000
Change = Callable[[dict[str, Any]], None]
EACH_SERVER = {
    "source.kafka.bootstrap_servers",
    "decode.avro.registry",
    "checkpoint",
    "catalogs.lake.uri",
    "sinks.base.jdbc.url",
    "sinks.index.elasticsearch.url",
}


def land(servers: Secured, change: Change, *, environment: dict[str, str] | None = None) -> None:
    """Produce records; check, run and verify a pipeline with separate executors; check that all sinks have the rows."""
    topic = name = f"trips_{uuid.uuid4().hex[:8]}"
    # Also encrypt the traffic between driver and executors, because it carries certificates and keys.
    spark = {"spark.authenticate.secret": "${SPARK_SECRET}", "spark.network.crypto.enabled": "true"}
    pipeline = {**servers.pipeline(topic, name), "spark": spark}
    change(pipeline)
    file = servers.write(pipeline)
    given = {**servers.environment, **(environment or {}), "SPARK_SECRET": secrets.token_hex(16)}

    def run(*arguments: str | Path) -> str:
        done = lakefeed(*arguments, environment=given)
        hidden = [*servers.passwords.values(), given["SPARK_SECRET"]]
        assert not [secret for secret in hidden if secret in done.stdout + done.stderr]
        return done.stdout

    run("topics", "create", topic, "--partitions", "2")
    run("topics", "produce", topic, "--generate", "taxi", "--rows", str(ROWS))
    run("check", file, "--connect")
    # Run on separate executors, which must get authority, certificate and key from the driver.
    master = "local-cluster[1,2,1024]"
    report = json.loads(run("run", file, "--once", "--master", master, "--output", "json"))
    assert report["rows"] == ROWS
    assert json.loads(run("verify", file, "--output", "json"))["findings"] == []
    connections = Pipeline.from_file(file, environment=given).connections
    assert open_table(f"lake.secured.{name}", connections=connections).scan().to_arrow().num_rows == ROWS
    assert servers.database.execute(f"SELECT count(*) FROM {name}") == [(ROWS,)]
    assert len(servers.search.documents(name)) == ROWS


def with_certificate(own: Signed) -> Change:
    """Return a change that makes the pipeline use a client certificate."""

    def change(pipeline: dict[str, Any]) -> None:
        pipeline["tls"] |= {"certificate": str(own.certificate), "key": str(own.key)}

    return change


def problems(servers: Secured, change: Change, *, environment: dict[str, str] | None = None) -> dict[str, str]:
    """Apply one change to the pipeline; return the problems that the check before a run finds, by setting."""
    name = f"wrong_{uuid.uuid4().hex[:8]}"
    pipeline = servers.pipeline("no_such_topic", name)
    change(pipeline)
    config = load(servers.write(pipeline), environment={**servers.environment, **(environment or {})})
    return {problem.key: f"{problem.what} next: {problem.hint}" for problem in preflight(config)}
