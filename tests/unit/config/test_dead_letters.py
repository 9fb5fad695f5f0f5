"""The destination of dead letters in a pipeline file: a table or a topic, but not a circle."""

import pytest

from tests.support.pipeline_text import GOOD, Reader


@pytest.mark.parametrize("place", ["table: lake.nyc.dead", "topic: trips-dead-letters"])
def test_they_go_to_a_table_or_a_topic(reading: Reader, place: str) -> None:
    config, found = reading(f"{GOOD}dead_letters: {{{place}, budget: {{max_rows: 3}}}}\n")
    assert found == []
    assert config is not None
    assert config.dead_letters is not None
    assert config.dead_letters.kind == place.partition(":")[0]


@pytest.mark.parametrize(
    ("block", "what"),
    [
        ("{table: lake.nyc.dead, topic: trips-dead-letters}", "table and topic"),
        ("{budget: {max_rows: 3}}", "table, topic"),
        ("{topic: 'a b'}", "can be no topic's name"),
        ("{topic: ..}", "can be no topic's name"),
        ("{topic: trips}", "which the source reads"),
    ],
)
def test_what_it_may_not_say(reading: Reader, block: str, what: str) -> None:
    config, found = reading(f"{GOOD}dead_letters: {block}\n")
    assert config is None
    assert what in " ".join(f"{each.what} {each.hint}" for each in found)


def test_a_pattern_may_not_match_the_topic(reading: Reader) -> None:
    text = GOOD.replace("topics: [trips]", "topics_pattern: trips.*") + "dead_letters: {topic: trips-dead}\n"
    _, found = reading(text)
    assert "which the source reads" in found[0].what
