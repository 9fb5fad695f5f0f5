"""Generated files: a valid file passes, and one run reports all mistakes of an invalid file with their lines."""

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakefeed.cli.check import check
from lakefeed.config.loading.load import read
from lakefeed.config.problem import errors_of
from tests.support.pipeline_generator import is_reported, pipeline, text_of, with_mistakes
from tests.support.pipeline_text import ENVIRONMENT, GOOD


def check_files(path: Path, seeds: range) -> None:
    for seed in seeds:
        dice = random.Random(seed)
        right = pipeline(dice)
        path.write_text(text_of(right), "utf-8")
        assert errors_of(read(path, environment=ENVIRONMENT).problems) == [], f"seed {seed}"
        wrong, mistakes = with_mistakes(right, dice)
        path.write_text(text_of(wrong), "utf-8")
        reading = read(path, environment=ENVIRONMENT)
        reported = errors_of(reading.problems)
        assert reading.config is None
        unreported = [each for each in mistakes if not is_reported(each, [problem.key for problem in reported])]
        assert unreported == [], f"seed {seed}: {[str(each) for each in reported]}\n{path.read_text()}"
        assert all(each.line for each in reported), f"seed {seed}"


def test_a_few_generated_files_are_read_as_expected(tmp_path: Path) -> None:
    check_files(tmp_path / "p.yaml", range(12))


@pytest.mark.slow
def test_many_generated_files_are_read_as_expected(tmp_path: Path) -> None:
    check_files(tmp_path / "p.yaml", range(1_000, 1_600))


# The generator does not produce these texts; test_load.py has further texts with their messages.
TEXTS = {
    "a number": "5\n",
    "null": "null\n",
    "an unknown tag": GOOD + "budget: !x {}\n",
    "deep": GOOD + "spark: " + "{a: " * 200 + "}" * 200 + "\n",
    "a key that is a list": GOOD + "? [a, b]\n: c\n",
    "a key that is null": GOOD + "null: 1\n",
    "nan": GOOD + "upkeep: {max_minutes: .nan}\n",
    "a huge number": GOOD + f"upkeep: {{max_minutes: {'9' * 5000}}}\n",
    "a huge exponent": GOOD + "upkeep: {max_minutes: 1e999999}\n",
    "a number to the base of 60": GOOD + f"budget: {{s3_requests_per_batch: 1{':59' * 200}}}\n",
    "an impossible date": GOOD + "trigger: 2024-99-99\n",
    "a lone surrogate": GOOD + 'trigger: "\\ud800"\n',
    "a right-to-left mark": GOOD + "trigg\u202eer: 1 minute\n",
    "binary": GOOD + "trigger: !!binary aGVsbG8=\n",
    "an unclosed quote": GOOD + "trigger: '1 minute\n",
    "an unclosed brace": GOOD + "budget: {a: 1\n",
    "a percent sign": "%YAML 9.9\n---\n" + GOOD,
}


@pytest.mark.parametrize("case", TEXTS)
def test_an_odd_text_is_reported_with_its_file(tmp_path: Path, case: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(TEXTS[case], "utf-8")
    for static in ([], ["--static"]):
        result = CliRunner().invoke(check, [str(path), *static], env=ENVIRONMENT)
        assert result.exit_code == 2, result.output
        assert isinstance(result.exception, SystemExit), result.exception
        assert f"{path}:" in result.stdout
        assert ": error: " in result.stdout
