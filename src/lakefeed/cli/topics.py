"""``lakefeed topics``: create, describe and list topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lakefeed.cli.options import bootstrap_option, bootstrap_servers_of, options_of, output_option, pairs
from lakefeed.cli.output import echo, emit

if TYPE_CHECKING:
    from lakefeed.clients.kafka.topics import Topics

usual_options = options_of(bootstrap_option, output_option)


@click.group()
def topics() -> None:
    """Create and describe topics."""


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
@usual_options
def describe(name: str, bootstrap_servers: str | None) -> None:
    """Show the topic NAME: its id, its partitions and how many records they hold."""
    found = _topics(bootstrap_servers).describe(name)
    lines = [f"{found.name}  id {found.topic_id}  records {found.records:,}"]
    for partition in found.partitions:
        leader = "none" if partition.leader is None else partition.leader
        offsets = f"{partition.start_offset:,} to {partition.end_offset:,}"
        lines.append(f"  partition {partition.id}  leader {leader}  offsets {offsets}")
    emit({**asdict(found), "records": found.records}, "\n".join(lines))


@topics.command("list")
@usual_options
def list_(bootstrap_servers: str | None) -> None:
    """Show the names of all topics but Kafka's own."""
    names = _topics(bootstrap_servers).list()
    emit(names, lambda: echo("".join(f"{name}\n" for name in names), nl=False))


def _topics(bootstrap_servers: str | None) -> Topics:
    from lakefeed.clients.kafka.topics import Topics

    return Topics(bootstrap_servers_of(bootstrap_servers))
