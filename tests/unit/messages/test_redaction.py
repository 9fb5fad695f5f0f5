"""Messages hide the secrets that this process has read."""

import pytest

from lakefeed.errors import ConfigError
from lakefeed.messages import redaction
from tests.support.remembered import forget_afterwards


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("only", "commonly only Java", "commonly ********** Java"),
        ("only", "password=only;", "password=**********;"),
        ("a+b(c", "x a+b(c y", "x ********** y"),
        ("correct-horse", "seecorrect-horseback", "see**********back"),
        ("abc", "abc is too short to hide", "abc is too short to hide"),
    ],
)
def test_a_secret_is_hidden_in_texts_and_errors(secret: str, text: str, shown: str) -> None:
    redaction.remember([secret])
    assert redaction.redacted(text) == shown
    assert shown in str(ConfigError(text, where="here"))


def test_the_secrets_of_a_block_are_forgotten_after_the_block() -> None:
    with forget_afterwards():
        redaction.remember(["wrong"])
        assert redaction.redacted("wrong") == redaction.HIDDEN
    assert redaction.redacted("wrong") == "wrong"
