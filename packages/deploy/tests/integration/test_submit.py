"""``lakefeed deploy submit`` checks the servers before it submits anything."""

import json
from pathlib import Path

import pytest

from tests.support.cli import lakefeed
from tests.support.feed import Feed

# No server listens here: a submission that passes the checks copies the jar, and fails within seconds.
MASTER = "spark://127.0.0.1:1"


def submit(feed: Feed, file: Path, *options: str) -> tuple[int, str, list[Path]]:
    """Run ``deploy submit``; return the exit status, the messages, and the copied files."""
    stage = feed.folder / "stage"
    stage.mkdir(exist_ok=True)
    mode = ("--master", MASTER, "--deploy-mode", "cluster", "--supervise", "--stage", stage)
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": "secret"}
    done = lakefeed("deploy", "submit", file, *mode, *options, environment=environment, status=None)
    return done.returncode, done.stderr, list(stage.iterdir())


@pytest.mark.slow
def test_a_missing_topic_is_reported_before_the_submission(feed: Feed) -> None:
    spark = {"spark.authenticate.secret": "${SPARK_AUTHENTICATE_SECRET}"}
    status, said, staged = submit(feed, feed.write_file(spark=spark, decode={"raw": {}}))
    assert status == 2
    assert f"there is no topic {feed.topic}" in said
    assert staged == []


@pytest.mark.slow
def test_an_unreachable_broker_causes_a_warning(feed: Feed) -> None:
    feed.create_topic(partitions=1)
    spark = {"spark.authenticate.secret": "${SPARK_AUTHENTICATE_SECRET}"}
    source = {"bootstrap_servers": "127.0.0.1:1", "topics": [feed.topic]}
    unreachable = feed.write_file(spark=spark, decode={"raw": {}}, source={"kafka": source})
    for options in ((), ("--print",)):
        _, said, staged = submit(feed, unreachable, *options)
        assert ("warning: " in said and "the driver repeats this check" in said) is not bool(options)
        assert (len(staged) == 1) is not bool(options)
        for jar in staged:
            jar.unlink()


@pytest.mark.slow
def test_the_option_no_check_skips_the_check_before_the_submission(feed: Feed) -> None:
    spark = {"spark.authenticate.secret": "${SPARK_AUTHENTICATE_SECRET}"}
    status, said, staged = submit(feed, feed.write_file(spark=spark, decode={"raw": {}}), "--no-check")
    assert "there is no topic" not in said
    assert (status, len(staged)) == (1, 1)
    assert "the cluster has not started the driver" in said
    assert json.dumps(feed.environment["AWS_SECRET_ACCESS_KEY"]) not in said
