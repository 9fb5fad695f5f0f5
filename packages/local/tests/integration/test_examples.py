"""Run the examples on real servers, as ``make examples`` does, and compare their results."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakefeed_local.stack import Endpoints
from packages.jdbc.tests.databases import server_of
from tools.examples import Runner, surroundings
from tools.expected import EXAMPLES, Example

# Other tests cover this example: ``lakefeed local demo`` runs it, and the documents use its topic and table.
ELSEWHERE = ("taxi/pipeline.yaml",)


@pytest.fixture(scope="module")
def runner(stack: Endpoints, lake: SparkSession, request: pytest.FixtureRequest) -> Iterator[Runner]:
    with surroundings(stack):
        ask = request.getfixturevalue
        yield Runner(lake, lambda kind: ask("search") if kind == "opensearch" else server_of(kind, ask))


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(each, id=each.file, marks=() if each.is_quick else pytest.mark.slow)
        for each in EXAMPLES
        if each.file not in ELSEWHERE
    ],
)
def test_an_example_has_the_expected_result(runner: Runner, example: Example) -> None:
    assert runner.run(example) == list(example.expected)
