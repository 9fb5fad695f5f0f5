"""A job of many topics, with one table for each topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.pipeline import Pipeline, RunSummary
from tests.support.feed import Feed


def schema(**fields: str) -> dict[str, Any]:
    columns = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Row", "fields": columns}


SCHEMAS = {
    "orders": schema(id="long", total="double"),
    "users": schema(name="string"),
    "quiet.one": schema(id="long", on="boolean"),
}


class Shop:
    """The job of one test."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def topic(self, name: str) -> str:
        return f"{self.feed.name}.{name}"

    def table(self, name: str) -> str:
        return f"lake.{self.feed.name}.{self.topic(name).replace('.', '_')}"

    def create(self, name: str, *, partitions: int = 2) -> None:
        self.feed.create_topic(topic=self.topic(name), partitions=partitions)

    def send(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.feed.send(self.feed.avro(rows, SCHEMAS[name], topic=self.topic(name)), topic=self.topic(name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.feed.rows(self.table(name))

    def pipeline(self, *, limit: int = 100_000, reads: Mapping[str, str] | None = None, **blocks: Any) -> Pipeline:
        source = {
            "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
            "topics_pattern": rf"{self.feed.name}\..*",
            "max_records_per_batch": limit,
            **(reads or {}),
        }
        path: Path = self.feed.folder / "many.yaml"
        document = {
            "name": self.feed.name,
            "source": {"kafka": source},
            "decode": {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["partition", "offset"]},
            "sink": {"iceberg": {"table": f"lake.{self.feed.name}.{{topic}}"}},
            "trigger": "1 second",
            **self.feed.path_block,
            **blocks,
        }
        path.write_text(json.dumps(document))
        return Pipeline.from_file(path, environment=self.feed.environment)

    def run_command(self, *arguments: str, topic: str | None = None, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Run a command on the job's file in this process; return its output, parsed as JSON."""
        self.feed.export(monkeypatch)
        chosen = ["--topic", self.topic(topic)] if topic else []
        done = CliRunner().invoke(root, [*arguments, *chosen, "--output", "json"], catch_exceptions=False)
        return json.loads(done.stdout)


def failures(summary: RunSummary) -> dict[str, str]:
    return {each.topic: each.failure for each in summary.tables if each.failure}


def verified(pipeline: Pipeline) -> bool:
    return all(not each.verify(deep=True).faults for each in pipeline.parts())
