"""The block ``dead_letters``: a table or a topic that the source does not read."""

import pytest

from tests.support.pipeline_text import GOOD, Acceptor, Reader


@pytest.mark.parametrize("place", ["table: lake.nyc.dead", "topic: trips-dead-letters"])
def test_dead_letters_go_to_a_table_or_a_topic(accepted: Acceptor, place: str) -> None:
    config = accepted(f"{GOOD}dead_letters: {{{place}, budget: {{max_rows: 3}}}}\n")
    assert config.dead_letters.kind == place.partition(":")[0]


@pytest.mark.parametrize(
    ("block", "what"),
    [
        ("{table: lake.nyc.dead, topic: trips-dead-letters}", "table and topic"),
        ("{budget: {max_rows: 3}}", "table, topic"),
        ("{topic: 'a b'}", "cannot be a topic"),
        ("{topic: ..}", "cannot be a topic"),
        ("{topic: trips}", "which the source reads"),
    ],
)
def test_a_wrong_destination_of_dead_letters_is_reported(reading: Reader, block: str, what: str) -> None:
    config, found = reading(f"{GOOD}dead_letters: {block}\n")
    assert config is None
    assert what in " ".join(f"{each.what} {each.hint}" for each in found)


def test_a_dead_letter_topic_that_the_pattern_matches_is_reported(reading: Reader) -> None:
    text = GOOD.replace("topics: [trips]", "topics_pattern: trips.*") + "dead_letters: {topic: trips-dead}\n"
    assert "which the source reads" in reading(text)[1][0].what
