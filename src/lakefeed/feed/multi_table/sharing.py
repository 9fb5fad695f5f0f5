"""Decides which topic has a table, where the names of several topics lead to it."""

from __future__ import annotations

from collections import defaultdict
from typing import Generic, TypeVar

from lakefeed.config.models import PipelineConfig
from lakefeed.config.places import Place, tables_of_topic
from lakefeed.errors import ConfigError
from lakefeed.ledger.feed_position import Position

Part = TypeVar("Part")


class Taken(Generic[Part]):
    """The tables that are in use, and by which topic."""

    def __init__(self) -> None:
        self._at: dict[str, list[tuple[Place, Part]]] = defaultdict(list)

    def take(self, topic: str, config: PipelineConfig, part: Part) -> tuple[Part, str] | None:
        """Register the tables of a topic.

        Args:
            topic: its name.
            config: of this topic alone.
            part: who uses them.

        Returns:
            Who uses one of them already, for what would mix with it, and the table; None if there is none.
        """
        clash = None
        for place in tables_of_topic(topic, config):
            there = self._at[place.name]
            if clash is None:
                clash = next(((other, place.name) for taken, other in there if place.mixes_with(taken)), None)
            there.append((place, part))
        return clash


def has_landed(position: Position | None, topic: str) -> bool:
    """Whether a table's rows are of this topic, as its ledger says."""
    return position is not None and topic in {each.topic for each in position.ranges.ranges}


def require_own(position: Position | None, topic: str, table: str) -> None:
    """Refuse a table whose ledger has the offsets of another topic under the feed's name.

    Names of feeds have '_' for what topics may have besides, so that two topics can have one name.

    Raises:
        ConfigError: naming the other topic.
    """
    if position is not None and position.ranges.ranges and not has_landed(position, topic):
        raise shares_a_table(position.ranges.ranges[0].topic, topic, table)


def shares_a_table(first: str, topic: str, table: str) -> ConfigError:
    """Return the error for a topic whose table is another topic's."""
    return ConfigError(
        f"the topics {first} and {topic} would go to one table",
        where=table,
        hint=f"give one of them another: tables: {{topics: {{{topic}: {{table: …}}}}}}",
    )
