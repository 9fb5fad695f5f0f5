"""A plug-in for pytest: topics, a registry and a table for tests of pipelines, without servers.

Name it in ``conftest.py``::

    pytest_plugins = ["lakefeed_testing.fixtures"]

A test sends records to topics, and lands them with a pipeline file::

    def test_a_negative_fare_is_a_dead_letter(lakefeed_topic, lakefeed_table):
        trips = lakefeed_topic("trips")
        trips.send({"zone": "A", "fare": -1})
        landed = lakefeed_table("pipeline.yaml", trips)
        assert landed.rows == []
        assert "fare_is_positive" in landed.dead_letters[0].reason

They run as the cases of ``lakefeed test`` do, in a Spark session of the test process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakefeed.config.base import validated
from lakefeed_testing.compare import FoundDeadLetter, Outcome, shown_row
from lakefeed_testing.load import load_cases, load_pipeline
from lakefeed_testing.run import CaseRunner, TestReport, run_files
from lakefeed_testing.settings import Case, CaseRecord, CaseSchema, CaseTable, PipelineTests

__all__ = ["LandRecords", "LandedRecords", "TestRegistry", "TestTopic", "run_cases"]


@dataclass
class TestTopic:
    """A topic of one test: the records that were sent to it, in their order."""

    __test__ = False

    name: str
    records: list[CaseRecord] = field(default_factory=list)

    def send(self, value: Any = None, **settings: Any) -> None:
        """Send a record: its value, None for a tombstone; ``settings`` are those of a record in ``tests.cases``.

        Raises:
            ConfigError: the settings are those of no record.
        """
        of_value = {} if {"text", "hex"} & settings.keys() else {"value": value}
        record = validated(CaseRecord, f"send to {self.name}", topic=self.name, **of_value, **settings)
        self.records.append(record)


@dataclass
class TestRegistry:
    """The schemas of one test, by id."""

    __test__ = False

    schemas: dict[int, CaseSchema] = field(default_factory=dict)

    def register(
        self, schema: Mapping[str, Any] | str, *, subject: str | None = None, schema_id: int | None = None
    ) -> int:
        """Register a schema; return its id. ``subject`` is by default that of the pipeline's values.

        Without ``schema_id`` it is the next above the others.
        """
        chosen = max(self.schemas, default=0) + 1 if schema_id is None else schema_id
        text = schema if isinstance(schema, str) else dict(schema)
        self.schemas[chosen] = validated(CaseSchema, f"schema {chosen}", subject=subject, schema=text)
        return chosen


@dataclass(frozen=True)
class LandedRecords:
    """Rows, dead letters and skipped records that a pipeline has made of the records of a test."""

    outcome: Outcome

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, by batch: times as ISO 8601 in UTC, bytes as text or hex, decimals as text."""
        return [shown_row(row, self.outcome.types) for row in self.outcome.rows]

    @property
    def dead_letters(self) -> Sequence[FoundDeadLetter]:
        """The records that became dead letters, with their positions and reasons."""
        return self.outcome.dead_letters

    @property
    def skipped(self) -> int:
        """How many records were left out because the pipeline file says so."""
        return self.outcome.skipped

    @property
    def error(self) -> str | None:
        """Why the feed has stopped; None if it has not."""
        return self.outcome.error


LandRecords = Callable[..., LandedRecords]


@pytest.fixture
def lakefeed_topic() -> Callable[[str], TestTopic]:
    """Return a function that makes a topic of this name."""
    return TestTopic


@pytest.fixture
def lakefeed_registry() -> TestRegistry:
    """Return the registry of this test."""
    return TestRegistry()


@pytest.fixture
def lakefeed_table(lakefeed_registry: TestRegistry) -> LandRecords:
    """Return a function that lands records with a pipeline file, and returns what became of them.

    Its arguments are the file, the topics, and by name ``overrides`` of the file, the ``tables`` that its transform
    joins with (columns as DDL, and rows), and ``latest``, the newest schema id at the start. The schemas are those of
    the registry, and of the file's own ``tests``.
    """

    def land(
        pipeline: str | Path,
        *topics: TestTopic,
        overrides: Sequence[str] = (),
        tables: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]] | None = None,
        latest: int | None = None,
    ) -> LandedRecords:
        file = load_pipeline(Path(pipeline), overrides=overrides)
        given = {
            name: validated(CaseTable, f"table {name}", schema_ddl=ddl, rows=[dict(row) for row in rows])
            for name, (ddl, rows) in (tables or {}).items()
        }
        own = file.tests
        tests = PipelineTests(
            schemas={**own.schemas, **lakefeed_registry.schemas}, tables={**own.tables, **given}, cases={}
        )
        records = [record for topic in topics for record in topic.records]
        case = validated(Case, str(pipeline), records=records, latest=latest)
        with CaseRunner(file.config, folder=Path(pipeline).absolute().parent) as runner:
            return LandedRecords(runner.run(file.with_tests(tests), "records of the test", case))

    return land


def run_cases(pipeline: str | Path, *paths: str | Path, overrides: Sequence[str] = ()) -> TestReport:
    """Run the cases of a pipeline file, and of further files and folders, as ``lakefeed test`` does.

    Example:
        >>> from lakefeed_testing.fixtures import run_cases
        >>> run_cases("pipeline.yaml").failed
        ()
    """
    files = load_cases(Path(pipeline), [Path(path) for path in paths], overrides=overrides)
    return run_files(Path(pipeline), files)
