"""Pytest fixtures for tests of pipelines without servers: topics, a registry and a table.

Name this plug-in in ``conftest.py``::

    pytest_plugins = ["lakefeed_testing.fixtures"]

A test sends records to topics, and lands them with a pipeline file::

    def test_a_negative_fare_is_a_dead_letter(lakefeed_topic, lakefeed_table):
        trips = lakefeed_topic("trips")
        trips.send({"zone": "A", "fare": -1})
        landed = lakefeed_table("pipeline.yaml", trips)
        assert landed.rows == []
        assert "fare_is_positive" in landed.dead_letters[0].reason

The pipelines run like the cases of ``lakefeed test``, in a Spark session of the test process.
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
    """A topic of one test, with the records that the test has sent."""

    __test__ = False

    name: str
    records: list[CaseRecord] = field(default_factory=list)

    def send(self, value: Any = None, **settings: Any) -> None:
        """Send a record with this value; None is a tombstone.

        ``settings`` are fields of a record as in ``tests.cases``. Raises ConfigError, which names an invalid field.
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
        """Register a schema, and return its id, by default the highest id plus 1.

        The default ``subject`` is the subject of the pipeline's values.
        """
        chosen = max(self.schemas, default=0) + 1 if schema_id is None else schema_id
        text = schema if isinstance(schema, str) else dict(schema)
        self.schemas[chosen] = validated(CaseSchema, f"schema {chosen}", subject=subject, schema=text)
        return chosen


@dataclass(frozen=True)
class LandedRecords:
    """The result of a pipeline for a test's records: rows, dead letters and skipped records."""

    outcome: Outcome

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table's rows in the order of the batches; times are in ISO 8601 and UTC, bytes and decimals are text."""
        return [shown_row(row, self.outcome.types) for row in self.outcome.rows]

    @property
    def dead_letters(self) -> Sequence[FoundDeadLetter]:
        """The records that became dead letters, with topic, partition, offset and reason."""
        return self.outcome.dead_letters

    @property
    def skipped(self) -> int:
        """The number of records that the feed has skipped."""
        return self.outcome.skipped

    @property
    def error(self) -> str | None:
        """The error that stopped the feed; None if it did not stop."""
        return self.outcome.error


LandRecords = Callable[..., LandedRecords]


@pytest.fixture
def lakefeed_topic() -> Callable[[str], TestTopic]:
    """Return a function that creates a topic with a name."""
    return TestTopic


@pytest.fixture
def lakefeed_registry() -> TestRegistry:
    return TestRegistry()


@pytest.fixture
def lakefeed_table(lakefeed_registry: TestRegistry) -> LandRecords:
    """Return a function that lands records with a pipeline file, and returns the result.

    The function's arguments are the file and the topics. Its keywords are ``overrides`` of the file, ``tables`` for the
    joins of its transform (columns as DDL, and rows), and ``latest``, the newest schema id at the start. The feed finds
    the schemas of the registry fixture and of the file's block ``tests``.
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
    """Run the cases of a pipeline file and of further files and folders, as ``lakefeed test`` does.

    Example:
        >>> from lakefeed_testing.fixtures import run_cases
        >>> run_cases("pipeline.yaml").failed
        ()
    """
    files = load_cases(Path(pipeline), [Path(path) for path in paths], overrides=overrides)
    return run_files(Path(pipeline), files)
