"""Each row lands once although YARN loses the container of an executor during a batch."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.cli import Running
from tests.support.cluster_feeds import SLOW_BATCH, SLOW_ROWS, assert_each_row_once, marked, send_slow_rows, slow_file
from tests.support.feed import Feed
from tests.support.servers.yarn import EXECUTOR, Yarn, yarn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as running:
        yield running


def test_each_row_lands_once_if_an_executor_is_killed_in_mid_batch(feed: Feed, cluster: Yarn) -> None:
    rows = send_slow_rows(feed)
    marks = feed.folder / "marks"
    environment = {**feed.environment, **cluster.environment}
    file = slow_file(feed, marks, spark=cluster.settings())
    running = Running(["run", file, "--once", "--master", "yarn"], environment, feed.folder / "run.log")
    # Kill the executor in the second batch, so that the first batch is committed.
    cluster.wait_for("the second batch", lambda: marked(marks) > SLOW_BATCH + SLOW_BATCH // 3)
    before = cluster.pids_of(EXECUTOR)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    cluster.wait_for("another container", lambda: set(cluster.pids_of(EXECUTOR)) - set(before))
    assert running.process.wait(300) == 0, running.said() + cluster.logs()
    assert marked(marks) > SLOW_ROWS  # There are more marks than rows: lost rows were computed again.
    assert_each_row_once(feed, file, rows, environment)
    cluster.wait_for_success(feed.name)
