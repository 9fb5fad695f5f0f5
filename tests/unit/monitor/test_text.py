"""``json_line`` writes a document on one line of JSON, without secrets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.messages import redaction
from lakefeed.messages.redaction import HIDDEN
from lakefeed.messages.text import json_line


@pytest.mark.parametrize("secret", ["20240101", "partition", "null", '":"', "false"])
def test_json_stays_valid_when_a_secret_that_looks_like_json_is_hidden(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_known", {secret})
    document = {"end": 1202401013, "partition": 0, "20240101": [1, 2], "running": None, "hangs": False}
    assert json.loads(json_line(document)) == document


def test_secrets_are_hidden_in_values_keys_and_other_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", {"canary 4711"})
    text = "a canary 4711 b"
    error = json.loads(json_line({"value": text, text: [text], "other": ValueError(text * 1000)}))
    hidden = f"a {HIDDEN} b"
    assert (error["value"], error[hidden]) == (hidden, [hidden])
    assert "4711" not in error["other"]
    assert len(error["other"]) < 2100


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_any_document_becomes_one_line_of_valid_json(document: dict[str, str | int | None]) -> None:
    line = json_line(document)
    assert line.isprintable()
    assert json.loads(line) == document
