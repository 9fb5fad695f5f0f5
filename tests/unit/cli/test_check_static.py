"""``lakefeed check --static`` imports and runs no code of the user: it finds Python functions in their source."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakefeed.cli.check import check
from tests.support.pipeline_text import ENVIRONMENT, GOOD, TOPICS

HARMFUL = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n\n\ndef f(rows):\n    return rows\n"


def run(path: Path, text: str, *arguments: str) -> Result:
    path.write_text(text)
    return CliRunner().invoke(check, [str(path), "--static", *arguments], env=ENVIRONMENT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p.yaml"


def test_static_imports_no_module_of_the_user(path: Path) -> None:
    (path.parent / "own.py").write_text(HARMFUL)
    steps = "transform:\n  steps:\n    a: {python: 'own:f'}\n    b: {python: 'own:g'}\n    c: {python: 'elsewhere:h'}\n"
    result = run(path, GOOD + steps)
    assert result.exit_code == 2
    assert f"{path}:16:17: error: the module own has no g\n  next: the module defines Path, f" in result.stdout
    assert f"{path}:17:17: warning: elsewhere:h was not checked" in result.stdout
    assert not (path.parent / "own.ran").exists()


def test_static_reads_no_environment_variable_and_finds_the_other_mistakes(path: Path) -> None:
    text = GOOD.replace(TOPICS, "    topics: ['${THE_SECRET}', 'no topic!']\n    foo: 1\n")
    result = run(path, text, "--output", "json")
    found = json.loads(result.stdout)
    assert [(each["key"], each["severity"]) for each in found] == [
        ("source.kafka.bootstrap_servers", "warning"),
        ("source.kafka.topics.0", "warning"),
        ("source.kafka.topics.1", "error"),
        ("source.kafka.foo", "error"),
    ]
    assert ENVIRONMENT["THE_SECRET"] not in result.stdout


def test_static_accepts_a_correct_file_and_cannot_be_combined_with_connect(path: Path) -> None:
    result = run(path, GOOD)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"{path}: no mistakes"
    assert run(path, GOOD, "--connect").exit_code == 2


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def f(rows): pass", None),
        ("async def f(rows): pass", None),
        ("class f: pass", None),
        ("f = lambda rows: rows", None),
        ("f: int = 1", None),
        ("from a import b as f", None),
        ("from a import *", None),
        ("try:\n    import f\nexcept ImportError:\n    f = None", None),
        ("if True:\n    def f(): pass", None),
        ("for f in (1,): pass", None),
        ("globals()['f'] = 1", None),
        ("def __getattr__(name): return 1", None),
        ("def g():\n    f = 1", "has no f"),
        ("def f(:", "cannot be imported"),
        ("\0", "cannot be imported"),
        ("", "has no f"),
    ],
)
def test_static_finds_functions_in_their_source(path: Path, source: str, problem: str | None) -> None:
    (path.parent / "own.py").write_text(source)
    result = run(path, f"{GOOD}transform: {{steps: {{a: {{python: 'own:f'}}}}}}\n")
    assert result.exit_code == (0 if problem is None else 2)
    assert problem is None or problem in result.stdout
