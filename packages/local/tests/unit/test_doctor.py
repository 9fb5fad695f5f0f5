"""``lakefeed local doctor`` finds problems of folders, a store, a port, and a java that is too old."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lakefeed_local.doctor import Diagnosis, examine
from tests.support.servers.gate import Handler, serving


class Store(Handler):
    """A store without conditional writes: it overwrites any object, and answers HEAD with a date."""

    date = "Mon, 23 Nov 2026 07:00:00 GMT"

    def answer(self, body: bytes) -> None:
        if self.command == "HEAD":
            self.send(403, b"", {"Date": self.date})
        else:
            self.send(200, b"", {})


@pytest.fixture
def store() -> Iterator[str]:
    with serving(Store) as port:
        yield f"http://127.0.0.1:{port}"


def found(name: str) -> Diagnosis:
    return next(finding for finding in examine() if finding.name == name)


def test_every_error_has_a_hint() -> None:
    findings = examine()
    assert {finding.name for finding in findings} >= {"python", "java", "spark", "jars", "memory", "cache", "clock"}
    assert all(finding.hint for finding in findings if finding.verdict == "error")


def test_a_java_that_is_too_old_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = found("java")
    assert (finding.verdict, "Java 11 is too old" in finding.what) == ("error", True)
    assert finding.hint


def test_missing_jars_cause_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "empty"))
    finding = found("jars")
    assert (finding.verdict, finding.hint) == ("warning", "run lakefeed jars fetch, or let the first start fetch them")


def test_the_clock_is_compared_with_the_store(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store)
    monkeypatch.setattr(Store, "date", "Mon, 23 Nov 2020 07:00:00 GMT")
    finding = found("clock")
    assert (finding.verdict, "S3 refuses" in (finding.hint or "")) == ("error", True)
    monkeypatch.setattr(Store, "date", "yesterday")
    assert found("clock").verdict == "warning"


def test_a_store_that_ignores_if_none_match_is_an_error(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL_S3": store,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "not-a-secret",
        "LAKEFEED_WAREHOUSE": "s3://lake/warehouse",
    }.items():
        monkeypatch.setenv(name, value)
    finding = found("store")
    assert (finding.verdict, "If-None-Match forbids" in finding.what) == ("error", True)
    monkeypatch.delenv("LAKEFEED_WAREHOUSE")
    assert found("store").verdict == "ok"


def test_a_dashboard_port_in_use_causes_a_warning() -> None:
    with socket.socket() as server:
        # If the test cannot listen on the port, another program uses it already, and the check must warn, too.
        with suppress(OSError):
            server.bind(("127.0.0.1", 8380))
        assert (found("ports").verdict, "--dashboard" in (found("ports").hint or "")) == ("warning", True)


def test_a_missing_store_causes_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert found("clock").what == "not compared: the store's answer has no time"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://[broken")
    assert found("clock").verdict == "warning"
