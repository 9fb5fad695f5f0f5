"""Output and exit status of ``lakefeed check`` without --connect."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakefeed.cli.check import check
from lakefeed.config.schema import json_schema
from tests.support.pipeline_text import ENVIRONMENT, GOOD


def run(path: Path, text: str, *arguments: str) -> Result:
    path.write_text(text)
    return CliRunner().invoke(check, [str(path), *arguments], env=ENVIRONMENT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p.yaml"


def test_a_file_without_mistakes_has_status_0(path: Path) -> None:
    result = run(path, GOOD)
    assert (result.exit_code, result.stdout) == (0, f"{path}: no mistakes\n")


def test_mistakes_are_printed_with_line_column_and_hint(path: Path) -> None:
    result = run(path, GOOD.replace("topics:", "tpoics:"), "--set", "trigger=soon")
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        f"{path}:5:5: error: unknown option 'tpoics' in 'source.kafka'",
        "  next: did you mean 'topics'?",
        "--set trigger: error: 'trigger': a trigger is '<n> milliseconds|seconds|minutes|hours', 'available-now', "
        "'real-time' or 'real-time, <n> seconds'",
        f"{path}: 2 errors",
    ]


def test_a_file_with_only_warnings_has_status_0(path: Path) -> None:
    result = run(path, f"{GOOD}s3: {{access_key: a, secret_key: '${{THE_SECRET}}'}}\n")
    assert result.exit_code == 0
    assert f"{path}:13:18: warning: 'access_key' holds a secret" in result.stdout


def test_mistakes_are_printed_as_json(path: Path) -> None:
    result = run(path, GOOD.replace("topics:", "tpoics:"), "--output", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout) == [
        {
            "file": str(path),
            "line": 5,
            "column": 5,
            "key": "source.kafka.tpoics",
            "severity": "error",
            "error": "ConfigError",
            "what": "unknown option 'tpoics' in 'source.kafka'",
            "about": None,
            "hint": "did you mean 'topics'?",
        }
    ]


def test_check_prints_the_json_schema_of_pipeline_files() -> None:
    result = CliRunner().invoke(check, ["--schema"])
    assert json.loads(result.stdout) == json_schema()


def test_a_missing_file_has_status_2() -> None:
    assert CliRunner().invoke(check, []).exit_code == 2
