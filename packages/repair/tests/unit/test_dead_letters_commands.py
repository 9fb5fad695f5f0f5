"""``lakefeed dead-letters`` as a command; a reader in memory returns the dead letters."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lakefeed.cli.main import root
from lakefeed.feed.feed import Feed
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.dead_letters.store import DeadLetterFilter

PIPELINE = """
name: taxi
source: {kafka: {bootstrap_servers: "127.0.0.1:9", topics: [trips]}}
decode: {json: {schema_ddl: "a INT"}}
sink: {iceberg: {table: lake.nyc.trips}}
dead_letters: {table: lake.nyc.dead}
checkpoint: "s3a://lake/c"
"""
# This text clears the screen, sets the window's title, starts a C1 sequence and reverses the line's direction.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202etxet"
LETTER: dict[str, Any] = {
    "topic": "trips",
    "partition": 3,
    "offset": 7,
    "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
    "reason": f"cannot be read: {HOSTILE}",
    "schema_id": None,
    "batch_id": 1,
    "failed_at": datetime(2026, 1, 2, tzinfo=UTC),
    "key": HOSTILE.encode(),
    "value": b"\xff\x1b[2J",
    "headers": [{"key": HOSTILE, "value": HOSTILE.encode()}],
}


class Letters:
    """A reader that returns one letter."""

    kind = "table"

    def __init__(self, name: str, choices: list[DeadLetterFilter]) -> None:
        self.name = name
        self._choices = choices

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        self._choices.append(choice)
        return [LETTER] if choice.means(LETTER["reason"]) else []


class Run:
    """Runs the command on a pipeline file, and records the filters of its reads."""

    def __init__(self, folder: Path) -> None:
        self.choices: list[DeadLetterFilter] = []
        self.tables: list[str] = []
        self.file = folder / "pipeline.yaml"
        self.file.write_text(PIPELINE)

    def __call__(self, command: str, *options: str) -> Result:
        return CliRunner().invoke(root, ["dead-letters", command, *options, str(self.file)], catch_exceptions=False)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("LAKEFEED_CATALOG_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("LAKEFEED_WAREHOUSE", "s3://lake/warehouse")
    this = Run(tmp_path)

    def letters(feed: Feed) -> Letters:
        assert feed.config.dead_letters is not None
        name = feed.config.dead_letters.table or ""
        this.tables.append(name)
        return Letters(name, this.choices)

    monkeypatch.setattr(Feed, "dead_letters", letters)
    return this


def is_harmless(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(("command", "position"), [("list", []), ("show", ["3:7"])])
def test_control_characters_of_a_letter_are_escaped(run: Run, command: str, position: list[str], output: str) -> None:
    shown = run(command, *position, "--output", output)
    assert shown.exit_code == 0, shown.output
    assert is_harmless(shown.output), shown.output
    if output == "text":
        assert r"\x1b[2J" in shown.output
        assert r"\u202etxet" in shown.output
    else:
        document = json.loads(shown.output)
        letter = document if command == "show" else document["dead_letters"][0]
        assert letter["reason"] == LETTER["reason"]


def test_a_reason_that_list_has_printed_selects_its_dead_letters(run: Run) -> None:
    listed = run("list").output
    printed = next(line.partition("1  ")[2] for line in listed.splitlines() if line.strip().startswith("1  "))
    assert "1 dead letter of feed" in run("list", "--reason", printed).output
    assert "0 dead letters" in run("list", "--reason", "something else").output


@pytest.mark.parametrize(("command", "position"), [("list", []), ("show", ["3:7"])])
def test_set_overrides_a_setting_of_list_and_show(run: Run, command: str, position: list[str]) -> None:
    done = run(command, *position, "--set", "name=other", "--set", "dead_letters.table=lake.nyc.others")
    assert done.exit_code == 0, done.output
    assert set(run.tables) == {"lake.nyc.others"}
    assert {choice.feed for choice in run.choices} == {"other"}


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_set_overrides_a_setting_of_replay_and_drop(run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Stopped(Exception):
        pass

    def session(pipeline: Pipeline, **_: object) -> None:
        seen.append((pipeline.config.name, pipeline.config.checkpoint))
        raise Stopped

    monkeypatch.setattr(Pipeline, "session", session)
    options = ["--set", "name=other", "--set=checkpoint=s3a://lake/d", *(["--yes"] if command == "drop" else [])]
    with pytest.raises(Stopped):
        run(command, *options)
    assert seen == [("other", "s3a://lake/d")]
