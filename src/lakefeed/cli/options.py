"""Arguments and options that several commands share, and functions that convert them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

import lakefeed
from lakefeed.clients.environment import default_environment
from lakefeed.errors import ConfigError
from lakefeed.plugins import CliCommand, installed_commands, missing_command

if TYPE_CHECKING:
    from lakefeed.config.connections import Registry
    from lakefeed.monitor.drivers import FeedServer

F = TypeVar("F", bound=Callable[..., Any])

WITH_REGISTRY = ("avro", "protobuf", "json_schema")
WITHOUT_REGISTRY: dict[str, dict[str, str]] = {"json": {"schema": "sample"}, "string": {}, "raw": {}}
"""The formats of ``--decode`` that need no registry, with their settings."""

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

PIPELINE_FILE = "pipeline.yaml"
"""The file that a command reads by default."""

pipeline_argument = click.argument("pipeline", type=FILE, default=PIPELINE_FILE)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting of the pipeline file: --set trigger='5 seconds'.",
)
topic_option = click.option("--topic", metavar="NAME", help="If the pipeline has many tables: only this topic's table.")
decode_option = click.option(
    "--decode",
    metavar="FORMAT",
    help="Format of a TOPIC's values: avro, protobuf, json_schema, json, string, raw, or a decode block.",
)
master_option = click.option("--master", help="Spark master.  [default: local[*]]")
log_file_option = click.option("--log-file", type=FILE, help="File for the JVM's log.  [default: in the cache's logs/]")
url_option = click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="URL",
    help="Ask this dashboard instead of this machine's drivers; LAKEFEED_TOKEN has its token.",
)
token_file_option = click.option("--token-file", type=FILE, help="File with the dashboard's token.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what the command would do, and change nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
output_option = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text for people, json for programs.",
    expose_value=False,  # ``emit`` reads the value from the context.
    callback=lambda context, _, value: context.meta.update(output=value),
)
bootstrap_option = click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,…",
    help="Kafka brokers.  [default: KAFKA_BOOTSTRAP_SERVERS, else the running local stack]",
)

registry_option = click.option(
    "--registry", metavar="URL", help="Schema Registry.  [default: SCHEMA_REGISTRY_URL, else the local stack's]"
)


def own_home_option(owner: str, *, folder: str, earlier: str = "one") -> Callable[[F], F]:
    """Return the option ``--home`` for a command that starts its own stack."""
    return click.option(
        "--home",
        type=FOLDER,
        help=f"Directory of the {owner}'s own stack; the files of an earlier {earlier} are removed.  "
        f"[default: {folder}/ in the local stack's directory]",
    )


def options_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options, which the help shows in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def bootstrap_servers_of(given: str | None) -> str:
    """Return the given brokers, or else those of the environment or of the local stack."""
    hint = "give --bootstrap-servers, set KAFKA_BOOTSTRAP_SERVERS, or start one: lakefeed local up"
    return _given_or_set(given, "KAFKA_BOOTSTRAP_SERVERS", what="no Kafka broker is named", hint=hint)


def registry_url_of(given: str | None) -> str:
    """Return the given registry's URL, or else that of the environment or of the local stack."""
    hint = "give --registry, set SCHEMA_REGISTRY_URL, or encode without one: --encode avro or json"
    return _given_or_set(given, "SCHEMA_REGISTRY_URL", what="no schema registry is named", hint=hint)


def decode_block_of(text: str, registry: str | None) -> dict[str, Any]:
    """Return the decode block for the text of ``--decode``: a format's name, or a whole block."""
    name = text.replace("-", "_")
    metadata = {"metadata": ["partition", "offset"]}
    if name in WITH_REGISTRY:
        return {name: {"registry": registry_of(registry)}, **metadata}
    if name in WITHOUT_REGISTRY:
        return {name: WITHOUT_REGISTRY[name], **metadata}
    import yaml

    try:
        block = yaml.safe_load(text)
    except yaml.YAMLError:
        block = None
    if not isinstance(block, dict):
        raise ConfigError(
            f"'{text}' is not a format",
            where="--decode",
            hint=f"give {', '.join((*WITH_REGISTRY, *WITHOUT_REGISTRY))}, or a block: "
            "'{csv: {schema_ddl: \"a INT\"}}'",
        )
    return {**metadata, **block}


def refuse_options_of_topics(decode: str | None, registry: str | None, bootstrap_servers: str | None) -> None:
    """Raise a ConfigError if one of the options is given, because the pipeline file sets the same."""
    options = {"--decode": decode, "--registry": registry, "--bootstrap-servers": bootstrap_servers}
    for option, given in options.items():
        if given is not None:
            hint = "--set KEY=VALUE overrides a setting of the file"
            raise ConfigError(f"{option} is only for a TOPIC; a pipeline file has its own setting", hint=hint)


def registry_of(given: str | None) -> Registry:
    """Return the registry of ``registry_url_of`` with the login from the environment."""
    from lakefeed.config.connections import Registry

    return Registry.from_environment(registry_url_of(given), default_environment())


def _given_or_set(given: str | None, variable: str, *, what: str, hint: str) -> str:
    if found := given or default_environment().get(variable):
        return found
    raise ConfigError(what, hint=hint)


def servers_of(urls: Sequence[str], token_file: Path | None) -> list[FeedServer]:
    """Return the dashboards at these URLs, with the token of the file or of ``LAKEFEED_TOKEN``.

    Raises:
        ConfigError: a URL is invalid, or the file has no token.
    """
    from lakefeed.messages.redaction import remember
    from lakefeed.monitor.drivers import FeedServer

    token = os.environ.get("LAKEFEED_TOKEN") or None
    if token_file is not None:
        try:
            token = token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            hint = "let this user read the file, or set LAKEFEED_TOKEN"
            raise ConfigError(f"the token cannot be read: {error}", where=str(token_file), hint=hint) from None
        if not token.isprintable() or not token.isascii() or not token:
            hint = "write the token into the file: one line of letters, digits and signs"
            raise ConfigError("the file has no token", where=str(token_file), hint=hint)
    if token is not None:
        remember([token])
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            hint = "give an address such as https://host:8380"
            raise ConfigError(f"{url} is not the address of a dashboard", where="--url", hint=hint)
    return [FeedServer(url, token) for url in dict.fromkeys(urls)]


def is_pipeline_file(name: str) -> bool:
    """Return whether an argument names a pipeline file, and no topic, table or feed."""
    return name.endswith((".yaml", ".yml", ".json")) or Path(name).is_file()


def is_default(argument: str) -> bool:
    """Return whether the command line does not set this argument of the current command."""
    return click.get_current_context().get_parameter_source(argument) is ParameterSource.DEFAULT


def parts_of(declared: lakefeed.Pipeline, topic: str | None) -> list[lakefeed.Pipeline]:
    """Return the single-table pipelines of all topics, or only that of ``topic``."""
    return [declared.of_topic(topic)] if topic is not None else declared.parts()


def one_part_of(declared: lakefeed.Pipeline, topic: str | None) -> lakefeed.Pipeline:
    """Return the pipeline of one table; raise a usage error if there are several tables and no topic is given."""
    if topic is None and declared.config.has_many_tables:
        raise click.UsageError("this pipeline has a table for each topic: choose one with --topic")
    return declared.of_topic(topic) if topic is not None else declared


def options_of_packages(command: str) -> str | None:
    """Return the last paragraph of a command's help, which lists the options that packages add to the command."""
    found = [(name.split()[1], each) for name, each in installed_commands().items() if name.startswith(f"{command} --")]
    lines = [f"{option:<13} {each.help} {option} --help shows more." for option, each in found]
    return "\n".join(["\b", "Options of packages:", *lines]) if lines else None


class CommandGroup(click.Group):
    """A group of commands, to which packages add theirs by whole names, such as ``offsets export``."""

    def added(self) -> dict[str, CliCommand]:
        """Return the commands that packages add to this group, by name without the group's; imports none of them."""
        prefix = f"{self.name} "
        found = installed_commands().items()
        return {name.removeprefix(prefix): command for name, command in found if name.startswith(prefix)}

    def whole_name(self, name: str) -> str:
        """Return the name by which a package declares this group's command ``name``."""
        return f"{self.name} {name}"

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in self.added() if name not in own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        found = self.added().get(cmd_name)
        return None if found is None else found.load()

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        for option in (each for each in args[1:] if each.startswith("--")):
            # A package may declare a command that runs when another command gets an option, such as "verify --content".
            if (found := installed_commands().get(f"{name} {option}")) is not None:
                return name, found.load(), args[1:]
            if (missing := missing_command(f"{name} {option}")) is not None:
                raise missing
        if not name.startswith("-") and name not in (known := self.list_commands(ctx)):
            if (missing := missing_command(self.whole_name(name))) is not None:
                raise missing
            near = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{name}'.{meant}", ctx)
        return super().resolve_command(ctx, args)
