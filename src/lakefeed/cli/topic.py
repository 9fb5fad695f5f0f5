"""``--topic``: which table is meant, where each topic of a pipeline has one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lakefeed.pipeline import Pipeline

topic_option = click.option("--topic", help="Where each topic has a table of its own: this one only.")


def parts_of(declared: Pipeline, topic: str | None) -> list[Pipeline]:
    """The pipelines of one table each that are meant: that of the topic, or all.

    Raises:
        ConfigError: a topic is named, and all topics go to one table, or it is not among them.
        Unreachable: no broker says which topics there are.
    """
    return [declared.of_topic(topic)] if topic is not None else declared.parts()


def one_part_of(declared: Pipeline, topic: str | None) -> Pipeline:
    """The pipeline of the one table that is meant.

    Raises:
        UsageError: there are many, and none is named.
        ConfigError: as ``parts_of``.
    """
    if topic is None and declared.config.has_many_tables:
        raise click.UsageError("each topic has a table of its own: --topic says which one is meant")
    return declared.of_topic(topic) if topic is not None else declared
