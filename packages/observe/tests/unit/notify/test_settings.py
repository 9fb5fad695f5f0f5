"""Mistakes in the block ``notify`` are reported with their places and without secrets."""

from pathlib import Path

import pytest

from tests.support.pipeline_text import ENVIRONMENT, GOOD, problems


def found(tmp_path: Path, block: str) -> list[tuple[str | None, str, str | None]]:
    path = tmp_path / "p.yaml"
    path.write_text(f"{GOOD}notify:\n{block}")
    _, mistakes = problems(path, environment=ENVIRONMENT)
    assert ENVIRONMENT["THE_SECRET"] not in "".join(map(str, mistakes))
    return [(problem.key, problem.what, problem.hint) for problem in mistakes]


COMMAND = "  targets: {own: {command: {run: [page]}}}\n"


@pytest.mark.parametrize(
    ("block", "what", "hint"),
    [
        ("  cooldown: 5 minutes\n" + COMMAND, "unknown option 'cooldown'", "did you mean 'cool_down'?"),
        (COMMAND + "  when: {lagg: {records: 5}}\n", "unknown option 'lagg'", "did you mean 'lag'?"),
        (COMMAND + "  when: {lag: {for: 1 minute}}\n", "lag requires records or seconds", None),
        (COMMAND + "  when: {dead_letters: {within: 2 days, count: 1}}\n", "the time must be at most 1 day", None),
        ("  targets: {own: {command: {run: [page]}, only: [no-data]}}\n", "no-data", "did you mean 'no_data'?"),
        ("  targets: {own: {}}\n", "exactly one of webhook, mail, command", None),
        ("  targets: {own: {webhook: {url: 'ftp://x'}}}\n", "write the address as http://host/", None),
        ("  targets: {own: {webhook: {url: '${THE_SECRET}'}}}\n", "write the address as http://host/", None),
        (
            "  targets: {own: {webhook: {url: 'http://x', headers: {'A b': x}}}}\n",
            "'A b'",
            "a header's name has letters",
        ),
        (
            '  targets: {own: {mail: {host: h, from: a@b.c, to: ["a@b.c\\nBcc: d@e.f"]}}}\n',
            "write the mail address as name@example.com",
            None,
        ),
        (
            "  targets: {own: {mail: {host: h, security: none, user: u, password: '${THE_SECRET}', from: a@b.c, "
            "to: [a@b.c]}}}\n",
            "the password would cross the network as plain text",
            "write security: starttls, or tls",
        ),
        (
            "  targets: {own: {command: {run: [page, --token=abc]}}}\n",
            "an argument is a secret",
            "environment: {NAME: ${NAME}}, which the program reads",
        ),
        (
            "  targets: {own: {command: {run: [page, '${THE_SECRET}'], environment: {TOKEN: '${THE_SECRET}'}}}}\n",
            "an argument is a secret",
            "environment: {NAME: ${NAME}}, which the program reads",
        ),
    ],
)
def test_a_mistake_is_reported_with_a_hint(tmp_path: Path, block: str, what: str, hint: str | None) -> None:
    mistakes = [mistake for mistake in found(tmp_path, block) if what in mistake[1]]
    assert mistakes
    assert hint is None or hint in str(mistakes[0][2])


def test_a_correct_block_has_no_mistakes(tmp_path: Path) -> None:
    assert found(tmp_path, COMMAND + "  when: {no_data: 5 minutes, stopped: false}\n") == []
