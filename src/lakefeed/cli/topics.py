"""``lakefeed topics``: create, list and show topics; what shows their records is in ``topic_records``."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import (
    bootstrap_option,
    bootstrap_servers_of,
    kafka_options,
    options_of,
    output_option,
    pairs,
    registry_option,
)
from lakefeed.cli.output import echo, echo_columns, emit
from lakefeed.cli.topic_records import profile, sample, tail

if TYPE_CHECKING:
    from lakefeed.clients.kafka.topics import Topics

usual_options = options_of(bootstrap_option, output_option)


@click.group()
def topics() -> None:
    """Create topics, and look into them."""


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=10, show_default=True)
@click.option("--replication-factor", type=click.IntRange(1), help="Copies.  [default: the broker's]")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A topic setting: retention.ms=3600000.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that is there as it is.")
@usual_options
def create(
    name: str,
    partitions: int,
    replication_factor: int | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_servers: str | None,
) -> None:
    """Create the topic NAME."""
    created = _topics(bootstrap_servers).create(
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=pairs(config, option="--config"),
        exist_ok=if_not_exists,
    )
    text = f"created {name} with {partitions} partitions" if created else f"{name} was there already"
    emit({"topic": name, "created": created}, text)


@topics.command()
@click.argument("name")
@registry_option
@usual_options
def show(name: str, registry: str | None, bootstrap_servers: str | None) -> None:
    """Show the topic NAME: its id, settings, schemas, partitions and the offsets that they hold."""
    found = lakefeed.Topic(
        name, bootstrap_servers=bootstrap_servers_of(bootstrap_servers), registry=registry
    ).describe()

    def text() -> None:
        topic = found.description
        echo(f"{topic.name}  id {topic.topic_id}  offsets {topic.offsets:,}")
        for key, value in found.settings.items():
            echo(f"  {key} = {value}")
        for schema in found.schemas:
            echo(f"  {schema.subject}: {found.schema_text(schema)}")
        for partition in topic.partitions:
            leader = "none" if partition.leader is None else partition.leader
            offsets = f"{partition.start_offset:,} to {partition.end_offset:,}"
            echo(f"  partition {partition.id}  leader {leader}  offsets {offsets}")

    emit(found.as_dict(), text)


@topics.command("list")
@click.option("--details", is_flag=True, help="Partitions and offsets of each.")
@usual_options
def list_(details: bool, bootstrap_servers: str | None) -> None:
    """Show the names of all topics but Kafka's own."""
    cluster = _topics(bootstrap_servers)
    names = cluster.list()
    if not details:
        emit(names, lambda: echo("".join(f"{name}\n" for name in names), nl=False))
        return
    found = [
        {"topic": name, "partitions": len(topic.partitions), "offsets": topic.offsets}
        for name, topic in cluster.describe_all(names).items()
    ]
    cells = [(str(each["topic"]), f"{each['partitions']:,}", f"{each['offsets']:,}") for each in found]
    emit(found, lambda: echo_columns([("topic", "partitions", "offsets"), *cells], left=1, indent=0))


# The name that ``show`` had: what calls it keeps working.
describe = copy(show)
describe.hidden = True
topics.add_command(describe, "describe")
for command in (sample, tail, profile):
    topics.add_command(command)


def _topics(bootstrap_servers: str | None) -> Topics:
    from lakefeed.clients.kafka.topics import Topics

    return Topics(bootstrap_servers_of(bootstrap_servers), options=kafka_options())
