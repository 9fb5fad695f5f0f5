"""The example package in docs/extension-points.md adds a block, a follower and a format."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from lakefeed.config.connections import Connections
from lakefeed.config.decoding import Decode
from lakefeed.config.loading.load import read
from lakefeed.config.schema import json_schema
from lakefeed.errors import Unreachable
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun, following
from lakefeed.plugins import FORMATS_GROUP
from tests.support.plugin import forget_blocks, put_page_on_path

KEYS = "known here: avro, protobuf, json_schema, json, string, raw, key, envelope, unavailable_value, on_unavailable, "
KEYS += "metadata, on_null, on_bad_timestamp, on_unknown_field, on_encrypted, access_log, csv"
FILE = "name: taxi\nsource: {rate: {}}\nsink: memory\npager: {url: https://pager.example.org}\n"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path / "home"))
    put_page_on_path(tmp_path, monkeypatch)
    yield
    monkeypatch.undo()
    forget_blocks()


def test_the_block_that_a_package_adds_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.replace("url:", "urll:"))
    [problem] = read(path).problems
    assert (problem.line, problem.hint) == (4, "did you mean 'url'?")
    path.write_text(f"{FILE}trigger: available-now\n")
    [problem] = read(path).problems
    assert (problem.line, problem.what) == (4, "a run that ends by itself calls no pager")


def test_the_follower_that_a_package_adds_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE)
    config = read(path).config
    assert config is not None
    monitor = FeedMonitor("taxi")
    run = FollowedRun(config=config, monitor=monitor, connections=Connections())
    with pytest.raises(Unreachable), following(run), monitor.until_end():
        raise Unreachable("the broker does not answer")
    assert "call https://pager.example.org: taxi has failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("block", "line", "what", "hint"),
    [
        ("access_log: {sepa: x}", 5, "unknown option 'sepa' in 'decode.access_log'", "known here: separator"),
        ("access_log: {separator: [1]}", 5, "'separator' expects text; found a list", None),
        ("raw: {}\n  msgpack: {}", 6, "unknown option 'msgpack' in 'decode'", KEYS),
        ("acess_log: {}", 5, "unknown option 'acess_log' in 'decode'", "did you mean 'access_log'?"),
        ("raw:\n  key: {access_log: {separator: 1}}", 6, "'separator' expects text; found '1'", "put it in quotes"),
    ],
)
def test_the_format_that_a_package_adds_is_checked(
    tmp_path: Path, block: str, line: int, what: str, hint: str | None
) -> None:
    path = tmp_path / "pipeline.yaml"
    kafka = "name: taxi\nsource: {kafka: {bootstrap_servers: b:1, topics: [t]}}\nsink: memory\n"
    path.write_text(f'{kafka}decode:\n  access_log: {{separator: ";"}}\n  key: access_log\n')
    config = read(path).config
    assert config is not None
    assert (config.decode.kind, config.decode.key and config.decode.key.kind) == ("access_log", "access_log")
    path.write_text(f"{kafka}decode:\n  {block}\n")
    [problem] = read(path).problems
    assert (problem.line, problem.what, problem.hint) == (line, what, hint)


def test_the_schema_for_editors_has_the_format_that_a_package_adds() -> None:
    blocks = json_schema()["$defs"]
    assert blocks["AccessLogFormat"]["properties"]["separator"]["description"] == "Between two values."
    for name in ("Decode", "KeyDecode"):
        assert {"required": ["access_log"]} in blocks[name]["anyOf"][0]["oneOf"]
        assert "access_log" in blocks[name]["anyOf"][1]["enum"]


def test_a_package_cannot_replace_a_format_of_lakefeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("json", "my_package.access_log:AccessLogFormat", FORMATS_GROUP)
    monkeypatch.setattr("lakefeed.plugins.installed", lambda group: [entry] if group == FORMATS_GROUP else [])
    assert Decode.model_validate({"json": {"schema_ddl": "a INT"}}).json_ is not None
