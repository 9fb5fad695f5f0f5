"""``lakefeed topics``: create, describe and list topics."""

from __future__ import annotations

from dataclasses import asdict

import click

from lakefeed.cli.output import echo, emit, output_option
from lakefeed.cli.servers import bootstrap_option, bootstrap_servers_of, pairs


@click.group()
def topics() -> None:
    """Create and describe topics."""


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=10, show_default=True)
@click.option("--replication-factor", type=click.IntRange(1), help="Copies.  [default: the broker's]")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A topic setting: retention.ms=3600000.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that is there as it is.")
@bootstrap_option
@output_option
def create(
    name: str,
    partitions: int,
    replication_factor: int | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_servers: str | None,
    output: str,
) -> None:
    """Create the topic NAME."""
    from lakefeed.clients.kafka.topics import Topics

    created = Topics(bootstrap_servers_of(bootstrap_servers)).create(
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=pairs(config, option="--config"),
        exist_ok=if_not_exists,
    )
    said = f"created {name} with {partitions} partitions" if created else f"{name} was there already"
    emit(output, {"topic": name, "created": created}, lambda: echo(said))


@topics.command()
@click.argument("name")
@bootstrap_option
@output_option
def describe(name: str, bootstrap_servers: str | None, output: str) -> None:
    """Show the topic NAME: its id, its partitions and how many records they hold."""
    from lakefeed.clients.kafka.topics import Topics

    found = Topics(bootstrap_servers_of(bootstrap_servers)).describe(name)

    def text() -> None:
        echo(f"{found.name}  id {found.topic_id}  records {found.records:,}")
        for each in found.partitions:
            leader = "none" if each.leader is None else each.leader
            echo(f"  partition {each.id}  leader {leader}  offsets {each.start_offset:,} to {each.end_offset:,}")

    emit(output, {**asdict(found), "records": found.records}, text)


@topics.command("list")
@bootstrap_option
@output_option
def list_(bootstrap_servers: str | None, output: str) -> None:
    """Show the names of all topics but Kafka's own."""
    from lakefeed.clients.kafka.topics import Topics

    names = Topics(bootstrap_servers_of(bootstrap_servers)).list()

    def text() -> None:
        for name in names:
            echo(name)

    emit(output, names, text)
