"""Download jars from a local HTTP server that answers correctly or wrongly."""

from __future__ import annotations

import base64
import hashlib
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakefeed.clients.spark import jars
from lakefeed.errors import ConfigError, DownloadError
from lakefeed.plugins import SINKS_GROUP, installed_kinds
from lakefeed_deploy.jars_command import jars as command
from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http
from tests.support.plugin import put_on_path

FIRST, SECOND = "org.example:first:1.0", "org.example.deep:second:all@tar.gz:2.0"
CONTENT = {FIRST: b"first jar" * 1000, SECOND: b"second archive" * 2000}


class Repository:
    """Serves two files; a test sets the faults of the answers."""

    def __init__(self) -> None:
        self.url = ""
        self.files = {f"/{jars.artifact_path(name)}": content for name, content in CONTENT.items()}
        self.truncate: set[str] = set()
        self.failures = 0
        self.credentials: str | None = None
        self.redirects: dict[str, str] = {}
        self.requests: list[tuple[str, str | None]] = []

    def answer(self, request: HttpRequest) -> HttpAnswer:
        authorization = request.headers.get("authorization")
        self.requests.append((request.path, authorization))
        if request.path in self.redirects:
            return HttpAnswer(302, headers={"Location": self.redirects[request.path]})
        if self.credentials and authorization != f"Basic {base64.b64encode(self.credentials.encode()).decode()}":
            return HttpAnswer(401)
        if self.failures > 0:
            self.failures -= 1
            return HttpAnswer(503)
        if (content := self.files.get(request.path)) is None:
            return HttpAnswer(404)
        sent = content[: len(content) // 2] if request.path in self.truncate else content
        return HttpAnswer(body=sent, headers={"Content-Length": str(len(content))})


def lock() -> jars.Lock:
    return jars.Lock(
        repository="http://127.0.0.1:9",
        artifacts=tuple(
            jars.Artifact(
                coordinate=name,
                groups=groups,
                sha256=hashlib.sha256(CONTENT[name]).hexdigest(),
                size=len(CONTENT[name]),
            )
            for name, groups in ((FIRST, ("a", "b")), (SECOND, ("b",)))
        ),
    )


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    server = Repository()
    monkeypatch.setattr(jars, "read_lock", lock)
    monkeypatch.setattr(jars, "_PAUSE_SECONDS", 0.01)
    for name in ("LAKEFEED_MAVEN_USER", "LAKEFEED_MAVEN_PASSWORD", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serve_http(server.answer) as server.url:
        monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("LAKEFEED_MAVEN_REPOSITORY", server.url)
        yield server


def cached(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_the_lock_file_has_distinct_coordinates_hashes_and_groups() -> None:
    document = json.loads(files("lakefeed").joinpath("jars.lock").read_text())
    coordinates = [item["coordinate"] for item in document["artifacts"]]
    assert len(set(coordinates)) == len(coordinates)
    assert document["repository"].startswith("https://")
    assert all(len(bytes.fromhex(item["sha256"])) == 32 for item in document["artifacts"])
    users = [group for group in jars.read_lock().groups if not group.startswith("test-")]
    assert " ".join(users) == "spark kafka s3proxy registry bench glue kinesis delta jdbc"


def test_a_sink_in_a_single_module_needs_no_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = jars.read_lock()
    put_on_path(tmp_path, {"lakefeed.sinks": "duck = duck_sink:Settings"}, monkeypatch, duck_sink="class Settings: ...")
    assert "duck" in installed_kinds(SINKS_GROUP)
    assert jars.read_lock() == before


def test_fetch_downloads_each_file_once(repository: Repository, tmp_path: Path) -> None:
    paths = jars.fetch(["a", "b"])
    assert [path.read_bytes() for path in paths] == [CONTENT[FIRST], CONTENT[SECOND]]
    assert jars.fetch(["a"]) == paths[:1]
    assert len(repository.requests) == 2
    assert cached(tmp_path) == ["first-1.0.jar", "second-2.0-all.tar.gz"]


def test_fetch_reports_the_number_of_bytes(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    @contextmanager
    def shown(artifacts: list[jars.Artifact], *, source: str) -> Iterator[jars.Progress]:
        yield calls.append

    monkeypatch.setattr(jars, "_shown", shown)
    jars.fetch(["b"])
    assert calls[-1] == sum(map(len, CONTENT.values()))


def test_fetch_prints_one_line_without_a_terminal(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    jars.fetch(["b"])
    assert capsys.readouterr().err == f"fetching 2 jars (0 MB) from {repository.url}\n"
    jars.fetch(["b"])
    assert capsys.readouterr().err == ""


def test_a_file_that_the_repository_lacks_is_an_error(repository: Repository, tmp_path: Path) -> None:
    path = f"/{jars.artifact_path(FIRST)}"
    del repository.files[path]
    with pytest.raises(DownloadError, match=f"{FIRST} was not downloaded: .*HTTP 404") as caught:
        jars.fetch(["a"])
    assert caught.value.where == repository.url + path
    assert "LAKEFEED_MAVEN_REPOSITORY" in str(caught.value.hint)
    assert cached(tmp_path) == []


def test_a_truncated_file_is_an_error(repository: Repository, tmp_path: Path) -> None:
    repository.truncate = set(repository.files)
    with pytest.raises(DownloadError, match="4500 of 9000 bytes arrived"):
        jars.fetch(["a"])
    assert len(repository.requests) == 3
    assert cached(tmp_path) == []


@pytest.mark.parametrize("content", [b"FIRST JAR" * 1000, b"first jar" * 1001])
def test_a_file_with_a_wrong_hash_is_an_error(repository: Repository, tmp_path: Path, content: bytes) -> None:
    repository.files[f"/{jars.artifact_path(FIRST)}"] = content
    expected = hashlib.sha256(CONTENT[FIRST]).hexdigest()
    with pytest.raises(DownloadError, match=f"SHA-256 is not the locked one\n  expected: {expected}") as caught:
        jars.fetch(["a"])
    if len(content) == 9000:
        assert f"actual:   {hashlib.sha256(content).hexdigest()}" in str(caught.value)
    assert cached(tmp_path) == []


def test_a_download_is_retried_after_server_errors(repository: Repository) -> None:
    repository.failures = 2
    assert jars.fetch(["a"])[0].read_bytes() == CONTENT[FIRST]
    repository.failures = 99
    with pytest.raises(DownloadError, match="HTTP 503"):
        jars.fetch(["b"])


def test_credentials_from_the_environment_are_sent(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.credentials = "me:pass word"
    with pytest.raises(DownloadError, match="HTTP 401") as caught:
        jars.fetch(["a"])
    assert "LAKEFEED_MAVEN_USER" in str(caught.value.hint)
    monkeypatch.setenv("LAKEFEED_MAVEN_USER", "me")
    monkeypatch.setenv("LAKEFEED_MAVEN_PASSWORD", "pass word")
    assert jars.fetch(["a"])[0].read_bytes() == CONTENT[FIRST]


def test_credentials_in_the_url_are_used_and_never_shown(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.credentials = "me:pass word"
    repository.files.clear()
    url = repository.url.replace("://", "://me:pass%20word@")
    monkeypatch.setenv("LAKEFEED_MAVEN_REPOSITORY", url)
    with pytest.raises(DownloadError, match="HTTP 404") as caught:
        jars.fetch(["a"])
    shown = str(caught.value) + capsys.readouterr().err + repr(jars.repository_from_environment("https://x"))
    assert "pass" not in shown
    assert "Basic" not in shown


def test_credentials_do_not_follow_a_redirect(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/{jars.artifact_path(FIRST)}"
    repository.redirects[path] = f"{repository.url}/elsewhere"
    repository.files["/elsewhere"] = CONTENT[FIRST]
    monkeypatch.setenv("LAKEFEED_MAVEN_USER", "me")
    jars.fetch(["a"])
    sent = dict(repository.requests)
    assert sent[path] is not None
    assert sent["/elsewhere"] is None


def test_an_unreachable_repository_is_an_error(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKEFEED_MAVEN_REPOSITORY", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"does not answer .*refused"):
        jars.fetch(["a"])
    assert cached(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"FIRST JAR" * 1000])
def test_fetch_repairs_a_damaged_cache(repository: Repository, damage: bytes) -> None:
    (path,) = jars.fetch(["a"])
    path.write_bytes(damage)
    assert jars.fetch(["a"]) == [path]
    assert path.read_bytes() == CONTENT[FIRST]


def test_a_folder_can_be_the_repository(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    path = mirror / jars.artifact_path(FIRST)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[FIRST])
    monkeypatch.setenv("LAKEFEED_MAVEN_REPOSITORY", mirror.as_uri())
    assert jars.fetch(["a"])[0].read_bytes() == CONTENT[FIRST]
    with pytest.raises(DownloadError, match="does not have it"):
        jars.fetch(["b"])


@pytest.mark.parametrize("url", ["/srv/maven", "ftp://example.org/maven", "maven"])
def test_a_repository_without_a_known_scheme_is_refused(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("LAKEFEED_MAVEN_REPOSITORY", url)
    with pytest.raises(ConfigError, match="not a https://"):
        jars.fetch(["a"])


def test_an_unwritable_cache_is_an_error(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        jars.fetch(["a"])
    assert "LAKEFEED_CACHE" in str(caught.value.hint)


def test_an_unknown_group_is_an_error(repository: Repository) -> None:
    with pytest.raises(ConfigError, match="no group of jars named c"):
        jars.fetch(["a", "c"])


def fetch_in_a_process(results: multiprocessing.Queue[list[str]]) -> None:
    results.put([str(path) for path in jars.fetch(["b"])])


def test_several_processes_can_fetch_at_the_same_time(repository: Repository, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[list[str]] = context.Queue()
    racers = [context.Process(target=fetch_in_a_process, args=(results,)) for _ in range(4)]
    for racer in racers:
        racer.start()
    found = [results.get(timeout=30) for _ in racers]
    for racer in racers:
        racer.join(30)
        assert racer.exitcode == 0
    assert all(paths == found[0] for paths in found)
    assert cached(tmp_path) == ["first-1.0.jar", "second-2.0-all.tar.gz"]
    assert [Path(path).read_bytes() for path in found[0]] == list(CONTENT.values())


def test_the_commands_fetch_verify_and_list(repository: Repository, tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(command, ["verify"]).exit_code == 1
    assert run(command, ["fetch", "--group", "a"]).exit_code == 0
    result = run(command, ["verify", "--output", "json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"ok": 1, "wrong": {SECOND: "missing"}}
    assert run(command, ["fetch"]).exit_code == 0
    assert run(command, ["verify"]).exit_code == 0
    listed = json.loads(run(command, ["list", "--group", "a", "--output", "json"]).stdout)
    assert [item["coordinate"] for item in listed] == [FIRST]
