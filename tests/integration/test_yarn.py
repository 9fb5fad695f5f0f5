"""A pipeline file runs unchanged on YARN, which installs Spark on nodes that have only Java and a bare Python."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed.clients.kafka.topics import Topics
from lakefeed_local.part import choose_free
from tests.support.cli import lakefeed
from tests.support.cluster_feeds import TAXI_ROWS, pretend_version, rows_of, taxi_file
from tests.support.feed import Feed
from tests.support.servers.yarn import Yarn, yarn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as running:
        yield running


def test_the_taxi_feed_lands_the_same_rows_on_one_machine_and_on_yarn(feed: Feed, cluster: Yarn) -> None:
    feed.create_topic(partitions=4)
    environment = {**feed.environment, **cluster.environment}
    lakefeed("topics", "produce", feed.topic, "--generate", "taxi", "--rows", str(TAXI_ROWS), environment=environment)

    lakefeed("run", taxi_file(feed, "a"), "--once", environment=environment)
    expected = rows_of(feed, "a")
    assert len(expected) == TAXI_ROWS
    assert len({row["borough"] for row in expected}) > 5

    # The driver is lakefeed on this machine; it sends jars, keys and functions to the executors.
    file = taxi_file(feed, "b", spark=cluster.settings())
    ran = lakefeed("run", file, "--once", "--master", "yarn", "--output", "json", environment=environment)
    summary = json.loads(ran.stdout)
    assert summary["rows"] == TAXI_ROWS
    assert summary["requests"]["calls"]["data"] == {"PutObject": summary["files"]}
    assert rows_of(feed, "b") == expected
    cluster.wait_for_success(f"{feed.name}b")

    # Run the same feed with spark-submit and the application jar.
    file = taxi_file(feed, "c", spark=cluster.settings())
    submitted = ("deploy", "submit", file, "--master", "yarn")
    shown = lakefeed(*submitted, "--print", "--", "--once", environment=environment)
    ran = lakefeed(*submitted, "--", "--once", environment=environment)
    assert rows_of(feed, "c") == expected
    cluster.wait_for_success(f"{feed.name}c")

    secret = feed.environment["AWS_SECRET_ACCESS_KEY"]
    assert not [text for text in (shown.stdout, ran.stdout, ran.stderr) if secret in text]
    read = [*cluster.log_files(), *given_to_containers(cluster)]
    assert not [path for path in read if secret.encode() in path.read_bytes()]


def given_to_containers(cluster: Yarn) -> list[Path]:
    """Return the small files, such as settings and scripts, that YARN has copied to the node's disk for containers."""
    found = [path for path in cluster.local.rglob("*") if path.is_file() and path.suffix not in (".jar", ".zip")]
    assert any(path.name == "__spark_conf__.properties" for path in found)
    return found


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spark.executor.memory": "100g"}, "an executor of 102400 MB and its overhead exceed the 4096 MB"),
        ({"spark.pyspark.python": "/nowhere/python3"}, "the executors have no /nowhere/python3"),
        ({"spark.pyspark.python": "OTHER"}, "the executors have Python 3.9, and the driver has Python 3."),
    ],
)
def test_a_yarn_cluster_that_cannot_run_the_feed_is_refused_at_the_start(
    feed: Feed, cluster: Yarn, settings: dict[str, str], message: str
) -> None:
    if settings.get("spark.pyspark.python") == "OTHER":
        settings = {"spark.pyspark.python": str(pretend_version(feed.folder / "other"))}
    assert message in refused(feed, {**cluster.settings(), **settings}, {**feed.environment, **cluster.environment})


def test_an_unknown_address_of_the_resource_manager_is_refused(feed: Feed, cluster: Yarn) -> None:
    environment = {**feed.environment, "HADOOP_CONF_DIR": "", "YARN_CONF_DIR": ""}
    assert "the address of YARN is not set" in refused(feed, cluster.settings(), environment)
    empty = feed.folder / "empty"
    empty.mkdir()
    environment["HADOOP_CONF_DIR"] = str(empty)
    assert "a folder without yarn-site.xml" in refused(feed, cluster.settings(), environment)


def test_the_error_names_a_resource_manager_that_does_not_answer(feed: Feed, cluster: Yarn) -> None:
    port = choose_free(avoid=())
    environment = {**feed.environment, **cluster.environment}
    settings = cluster.settings(**{"spark.hadoop.yarn.resourcemanager.address": f"127.0.0.1:{port}"})
    said = refused(feed, settings, environment, status=1)
    assert "YARN's ResourceManager does not answer" in said
    assert f"127.0.0.1:{port}" in said


def test_a_driver_in_cluster_mode_is_refused(feed: Feed, cluster: Yarn) -> None:
    feed.create_topic(partitions=1)
    stage = ("--deploy-mode", "cluster", "--stage", feed.folder)
    file = taxi_file(feed, "d", spark=cluster.settings())
    done = lakefeed(
        "deploy",
        "submit",
        file,
        "--master",
        "yarn",
        *stage,
        environment={**feed.environment, **cluster.environment},
        status=2,
    )
    assert "Spark would show the pipeline's variables, which a driver in cluster mode needs" in done.stderr
    assert "on YARN: client mode" in done.stderr


def refused(feed: Feed, settings: dict[str, str], environment: dict[str, str], *, status: int = 2) -> str:
    """Run the feed, whose start must fail with this exit status; return the printed error."""
    Topics(feed.stack.bootstrap_servers).create(feed.topic, partitions=1, exist_ok=True)
    feed.send(feed.avro([{"id": 1, "zone": "one"}]))  # A run needs a registered schema.
    file = taxi_file(feed, "d", spark=settings)
    done = lakefeed("run", file, "--once", "--master", "yarn", environment=environment, status=status)
    return done.stderr
