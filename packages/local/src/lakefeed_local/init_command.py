"""``lakefeed init``: writes a commented pipeline.yaml for a topic."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import click

from lakefeed.cli.options import (
    FILE,
    FOLDER,
    PIPELINE_FILE,
    bootstrap_option,
    bootstrap_servers_of,
    output_option,
    registry_option,
)
from lakefeed.cli.output import emit
from lakefeed.clients.environment import default_environment
from lakefeed.config.addresses import is_local, local_folder
from lakefeed.errors import ConfigError

PAGE = "check"


@click.command()
@click.option("--topic", required=True, metavar="NAME", help="The topic to land.")
@bootstrap_option
@registry_option
@click.option("--table", metavar="CATALOG.NAMESPACE.TABLE", help="The table.  [default: lake.landing.<name>]")
@click.option(
    "--warehouse",
    type=FOLDER,
    metavar="FOLDER",
    help="A local folder for the tables, instead of a store.  [default: LAKEFEED_WAREHOUSE]",
)
@click.option("--contract", type=FILE, help="A data contract (ODCS 3), whose rules go into the block expect.")
@click.option("--pipeline-name", metavar="NAME", help="The feed's name.  [default: from the topic's name]")
@click.option("--file", type=FILE, default=Path(PIPELINE_FILE), show_default=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@output_option
def init(
    topic: str,
    bootstrap_servers: str | None,
    registry: str | None,
    table: str | None,
    warehouse: Path | None,
    contract: Path | None,
    pipeline_name: str | None,
    file: Path,
    force: bool,
) -> None:
    """Write a commented pipeline.yaml for a topic and its schema.

    If no schema is registered, init reads a record. It also writes the JSON Schema of pipeline files, for editors.
    """
    from lakefeed_local import template
    from lakefeed_local.contract import read
    from lakefeed_local.discover import discover

    if file.exists() and not force:
        raise template.exists(file)
    rules = read(contract, topic) if contract is not None else None
    environment = default_environment()
    known = environment.get("LAKEFEED_WAREHOUSE", "")
    folder = _absolute(warehouse) if warehouse is not None else local_folder(known) if is_local(known) else None
    brokers = bootstrap_servers_of(bootstrap_servers)
    found = discover(topic, bootstrap_servers=brokers, registry_url=registry or environment.get("SCHEMA_REGISTRY_URL"))
    name = pipeline_name or template.name_of(topic)
    blank = template.Blank(
        topic=topic,
        name=name,
        table=table or f"lake.landing.{name}",
        bucket=urlsplit(known).netloc or "lake",
        bootstrap_servers=bootstrap_servers,
        registry_url=registry,
        discovery=found,
        warehouse=folder,
        rules=rules,
    )
    template.check(blank)
    template.write_new(file, template.pipeline_text(blank), overwrite=force)
    schema_file = template.write_schema_beside(file)
    document = {
        "file": str(file),
        "schema_file": str(schema_file) if schema_file else None,
        "topic": topic,
        "name": name,
        "table": blank.table,
        "decode": found.kind,
        "certain": found.certain,
        "how": found.how,
        "subject": found.subject,
        "columns": [{"name": column.name, "type": column.type} for column in found.columns],
        "rules": rules.expect if rules else {},
        "left_out": rules.left_out if rules else (),
    }
    text = (
        f"{file}: {topic} -> {blank.table}, values are {found.kind}\n"
        f"  {'known from' if found.certain else 'please check:'} {found.how}\n"
        + (
            f"  {len(rules.expect)} rules of {rules.source}; {len(rules.left_out)} others: see {file}\n"
            if rules
            else ""
        )
        + f"next: lakefeed check {file} --connect"
    )
    emit(document, text)


def _absolute(folder: Path) -> Path:
    """Return the folder of ``--warehouse``, a path or a file: URL."""
    where = f"--warehouse {folder}"
    scheme, colon, _ = str(folder).partition(":/")
    if colon and scheme == "file":
        try:
            return local_folder(str(folder))
        except ValueError as error:
            raise ConfigError(str(error), where=where) from None
    if colon and scheme.isalnum():
        hint = "leave --warehouse out, and set LAKEFEED_WAREHOUSE to the store's location"
        raise ConfigError("--warehouse needs a folder of this machine, not a store", where=where, hint=hint)
    return folder.expanduser().absolute()
