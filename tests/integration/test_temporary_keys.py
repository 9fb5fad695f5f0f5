"""A running feed renews S3 keys that expire after 10 seconds, from each provider of AWS's default chain.

The store refuses expired keys. All requests of a run need valid keys, even those for the run's trace.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakefeed.errors import ResourceMissing
from lakefeed_local.stack import Endpoints
from tests.support.cli import Running, lakefeed
from tests.support.feed import Feed
from tests.support.servers.temporary_keys import KeyGate, key_gate

SECONDS = 10
DECODE = {"json": {"schema_ddl": "id BIGINT"}}


@pytest.fixture
def gate(stack: Endpoints) -> Iterator[KeyGate]:
    with key_gate(stack, seconds=SECONDS) as running:
        yield running


def instance(gate: KeyGate, folder: Path) -> dict[str, str]:
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": gate.keys.url}


def container(gate: KeyGate, folder: Path) -> dict[str, str]:
    token = folder / "container-token"
    token.write_text(gate.keys.container_token)
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{gate.keys.url}/container",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
    }


def profile(gate: KeyGate, folder: Path) -> dict[str, str]:
    code = f"import urllib.request as u; print(u.urlopen('{gate.keys.url}/process').read().decode())"
    (folder / "ask.py").write_text(code)
    config = folder / "aws-config"
    config.write_text(f"[profile feed]\ncredential_process = {sys.executable} {folder / 'ask.py'}\n")
    credentials = folder / "aws-credentials"
    credentials.write_text("")
    return {"AWS_PROFILE": "feed", "AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(credentials)}


def web_identity(gate: KeyGate, folder: Path) -> dict[str, str]:
    """Return the variables of a web identity; the test replaces the token file, as Kubernetes does."""
    rotate(gate, folder)
    return {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "web-token"),
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/feed",
        "AWS_ROLE_SESSION_NAME": "feed",
        "AWS_ENDPOINT_URL_STS": gate.keys.url,
    }


def rotate(gate: KeyGate, folder: Path) -> None:
    gate.keys.web_token = f"token-{len(gate.keys.issued)}"
    (folder / "web-token").write_text(gate.keys.web_token)


@pytest.mark.parametrize(
    "source", [instance, *(pytest.param(each, marks=pytest.mark.slow) for each in (container, profile, web_identity))]
)
def test_a_running_feed_renews_expired_keys(
    feed: Feed, gate: KeyGate, source: Callable[[KeyGate, Path], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    feed.create_topic(partitions=1)
    kept = {name: value for name, value in feed.environment.items() if "ACCESS_KEY" not in name}
    environment = {**kept, "AWS_ENDPOINT_URL_S3": gate.url, **source(gate, feed.folder)}
    file = feed.write_file(decode=DECODE, runs={"keep": "checkpoint"})
    lakefeed("check", file, "--connect", environment=environment)

    feed.send([b'{"id": 0}'])
    running = Running(["run", file], environment, feed.folder / "log")
    try:
        running.wait_until(lambda: ids(feed) == [0])
        before = len(gate.used)
        time.sleep(SECONDS + 3)
        rotate(gate, feed.folder)
        feed.send([b'{"id": 1}'])
        running.wait_until(lambda: ids(feed) == [0, 1])
        assert len(gate.used) > before
    finally:
        status = running.ask_to_stop(signal.SIGTERM)
    assert status == 0, running.said()
    assert gate.refused == [], running.said()


def ids(feed: Feed) -> list[int]:
    try:
        return sorted(row["id"] for row in feed.rows())
    except ResourceMissing:
        return []
