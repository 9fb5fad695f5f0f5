"""A session whose jar lacks lakefeed's classes reports the cause without a stack trace."""

import pytest

from lakefeed.clients.spark.errors import translate
from lakefeed.errors import ConfigError, JobFailed

CALL = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: {}\n\tat java.base/java.lang.X"
)


@pytest.mark.parametrize(
    "java",
    [
        "java.lang.ClassNotFoundException: io.lakefeed.metrics.FeedMetrics",
        "java.lang.NoClassDefFoundError: io/lakefeed/metrics/FeedMetrics",
    ],
)
def test_a_stale_jar_is_the_users_to_replace(java: str) -> None:
    found = translate(RuntimeError(CALL.format(java)))
    assert (type(found), found.exit_status) == (ConfigError, 2)
    assert "install lakefeed again" in str(found)
    assert "FeedMetrics" in str(found)


def test_another_error_of_the_start_is_named_without_its_stack() -> None:
    found = translate(RuntimeError(CALL.format("java.lang.ClassNotFoundException: org.example.Mine")))
    assert (type(found), found.where) == (JobFailed, "java.lang.ClassNotFoundException: org.example.Mine")
