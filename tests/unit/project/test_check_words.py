"""The check of words reads the glossary and finds its words in prose and in names."""

import pytest

from tools.check_words import GLOSSARY, openings, pattern, prose, uses, words

LISTED = ["goes on", "told", "mend"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a feed goes on where it was", ["goes on"]),
        ("def test_a_feed_goes_on_again() -> None:", ["goes_on"]),
        ("Told twice, _told once", ["Told", "told"]),
        ("amend an ingoes on, stolid", []),
        ('kind="goes on"', []),
    ],
)
def test_words_are_found_whole_in_prose_and_in_names(line: str, found: list[str]) -> None:
    assert [word for _, word in uses(line, pattern(LISTED))] == found


def test_a_use_has_its_line() -> None:
    assert list(uses("first\nis told\n", pattern(LISTED))) == [(2, "told")]


def test_the_list_is_the_first_column_of_the_table() -> None:
    table = "## Words\n\n| do not use | use |\n|---|---|\n| `told`, `goes on` | `resume` |\n\n## More\n\n| `x` | |"
    table = f"# Contributing\n\n{table}"
    assert words(table) == ["told", "goes on"]


def test_a_page_without_the_table_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no table of words"):
        words("# Contributing\n")


def test_the_glossary_may_name_the_words_that_it_replaces() -> None:
    listed = words(GLOSSARY.read_text(encoding="utf-8"))
    assert "made again" in listed
    assert list(uses(prose(GLOSSARY), pattern(listed))) == []


SOURCE = '''"""Whether it is so."""

class Kept:
    """Whatever is kept."""

    def name(self) -> str:
        """
        Where it is."""

def land() -> None:
    """Land the rows, whether they are new or not."""

def undocumented() -> None: ...
'''


def test_a_docstring_that_begins_with_a_question_word_is_found() -> None:
    assert sorted(openings(SOURCE)) == [(1, "Whether"), (7, "Where")]
