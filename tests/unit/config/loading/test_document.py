from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.config.loading.document import interpolate

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
plain = st.text(st.characters(exclude_characters="$", exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "one"),
        ("x-${A}-${B}", "x-one-two"),
        ("${A}${A}", "oneone"),
        ("${C:-three}", "three"),
        ("${A:-three}", "one"),
        ("${EMPTY:-three}", "three"),
        ("${EMPTY}", ""),
        ("${C:-}", ""),
        ("$${A}", "${A}"),
        ("$$", "$"),
        ("$$$${A}", "$${A}"),
        ("$$${A}", "$one"),
        ("^taxi.*$", "^taxi.*$"),
        ("$A", "$A"),
        ("${C:-http://host:1/a-b}", "http://host:1/a-b"),
    ],
)
def test_references_are_replaced(text: str, expected: str) -> None:
    outcome = interpolate(text, environment={"A": "one", "B": "two", "EMPTY": ""})
    assert outcome.text == expected
    assert not outcome.undefined
    assert not outcome.malformed


def test_an_undefined_variable_is_named_once_and_stays() -> None:
    outcome = interpolate("${NO} ${NO}", environment={})
    assert outcome.undefined == ["NO"]
    assert outcome.text == "${NO} ${NO}"


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A B}", "${A:default}", "${A-default}", "${A:-${B}}"])
def test_what_is_no_reference_is_reported(text: str) -> None:
    assert interpolate(text, environment={"A": "one", "B": "two"}).malformed


@given(text=plain, environment=st.dictionaries(names, plain))
def test_text_without_a_dollar_sign_stays(text: str, environment: dict[str, str]) -> None:
    assert interpolate(text, environment=environment).text == text


@given(text=st.text(max_size=40))
def test_escaped_text_comes_back(text: str) -> None:
    outcome = interpolate(text.replace("$", "$$"), environment={})
    assert outcome.text == text
    assert not outcome.variables


@given(before=plain, after=plain, name=names, value=st.text(max_size=40))
def test_a_value_is_put_in_as_it_is(before: str, after: str, name: str, value: str) -> None:
    """A value is never looked at again: ``${B}`` inside it stays."""
    outcome = interpolate(f"{before}${{{name}}}{after}", environment={name: value})
    assert outcome.text == before + value + after
    assert outcome.variables == [name]


@given(name=names, default=st.text(st.characters(exclude_characters="$}", exclude_categories=["Cs"]), max_size=20))
def test_a_default_stands_for_an_unset_variable(name: str, default: str) -> None:
    assert interpolate(f"${{{name}:-{default}}}", environment={}).text == default
