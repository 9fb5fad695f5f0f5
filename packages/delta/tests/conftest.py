"""Another Spark, for the tests of this package."""

from collections.abc import Iterator

import pytest

from lakefeed_local.stack import Endpoints
from packages.delta.tests.other_spark import OtherSpark, other_spark


@pytest.fixture(scope="session")
def other(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSpark]:
    with other_spark(stack, tmp_path_factory.mktemp("other")) as running:
        yield running
