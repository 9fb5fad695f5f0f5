"""The check of words finds vague words in prose and names, and docstrings that begin with a question word."""

import pytest

from tools.check_words import openings, words_of


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a feed goes on where it was", ["goes on"]),
        ("def test_a_feed_goes_on_when_it_is_told() -> None:", ["goes_on", "told"]),
        ("Told twice, _told once, for somebody", ["Told", "told", "somebody"]),
        ("stolid, ingoes on, is_laid_out_anew", []),
        ('kind="goes on", told="new", told: str, `untold`, plan.told', []),
    ],
)
def test_vague_words_are_found_except_in_values_that_programs_read(line: str, found: list[str]) -> None:
    faults = list(words_of(f"first\n{line}\n"))
    assert sorted(fault.split("'")[1] for _, fault in faults) == sorted(found)
    assert {number for number, _ in faults} <= {2}


SOURCE = '''"""Whether it is so."""
class Kept:
    def name(self) -> str:
        """
        Where it is."""
def land() -> None:
    """Land the rows, whether they are new or not."""
def undocumented() -> None: ...
'''


def test_a_docstring_that_begins_with_a_question_word_is_found() -> None:
    assert sorted(number for number, _ in openings(SOURCE)) == [1, 4]
