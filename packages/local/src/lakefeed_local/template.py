"""Write the commented ``pipeline.yaml`` of ``lakefeed init``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from lakefeed.clients.environment import write_whole
from lakefeed.config.addresses import local_path
from lakefeed.config.connections import CATALOG_FILE, Registry
from lakefeed.config.schema import FILE_NAME, TITLE, json_schema, written
from lakefeed.config.values import Brokers, Identifier
from lakefeed.errors import ConfigError
from lakefeed.messages.pages import page_command
from lakefeed_local.contract import Rules
from lakefeed_local.discover import Discovery

PAGE = "pipeline-files"


MAX_FIELDS = 200
"""The largest number of fields that the comment in the file lists."""


@dataclass(frozen=True, kw_only=True)
class Blank:
    """The values to fill into a new pipeline file; an address is None if an environment variable sets it.

    Attributes:
        bucket: the bucket of the checkpoint.
        warehouse: a folder of this machine for the tables; None if the tables are in the store.
    """

    topic: str
    name: str
    table: str
    bucket: str
    bootstrap_servers: str | None
    registry_url: str | None
    discovery: Discovery
    warehouse: Path | None = None
    rules: Rules | None = None


def name_of(topic: str) -> str:
    """Return a pipeline name made from a topic's name: ``nyc-avro.topic`` becomes ``nyc_avro_topic``."""
    name = re.sub(r"\W+", "_", topic, flags=re.ASCII).strip("_").lower() or "pipeline"
    return name if not name[0].isdigit() else f"topic_{name}"


def check(blank: Blank) -> None:
    """Raise a ConfigError for a wrong name, table or address, before anything is written."""
    if not re.fullmatch(Identifier, blank.name):
        what = f"'{blank.name}' is not a valid pipeline name"
        raise ConfigError(what, where="--pipeline-name", hint="use letters, digits and underscores")
    if not re.fullmatch(rf"{Identifier}(\.{Identifier}){{2,}}", blank.table):
        what = f"'{blank.table}' is not the name of a table"
        raise ConfigError(what, where="--table", hint="write catalog.namespace.table")
    if blank.warehouse is not None:
        try:
            local_path(str(blank.warehouse))
        except ValueError as error:
            raise ConfigError(str(error), where=f"--warehouse {blank.warehouse}") from None
    for value, option, kind in (
        (blank.bootstrap_servers, "--bootstrap-servers", Brokers),
        (blank.registry_url, "--registry", Registry),
    ):
        try:
            TypeAdapter(kind if value is not None else None).validate_python(value)
        except ValidationError as error:
            what = error.errors(include_input=False, include_url=False)[0]["msg"].removeprefix("Value error, ")
            raise ConfigError(what, where=option) from None


def pipeline_text(blank: Blank) -> str:
    instants = (each.name for each in blank.discovery.columns if each.time == "instant")
    instant = next((name for name in instants if re.fullmatch(Identifier, name)), "kafka_timestamp")
    return "\n".join(
        [
            f"# yaml-language-server: $schema={FILE_NAME}",
            f"# Lands the topic {_comment(blank.topic)} in the table {blank.table}.",
            "#   lakefeed check FILE --connect   finds mistakes in this file and problems of its servers",
            "#   lakefeed run FILE               runs it",
            f"# ${{NAME}} comes from the environment. All settings: {page_command('pipeline-reference')}",
            "",
            "# The name marks commits and the checkpoint: do not change it after the first run.",
            f"name: {_scalar(blank.name)}",
            "",
            "source:",
            "  kafka:",
            f"    bootstrap_servers: {_variable('KAFKA_BOOTSTRAP_SERVERS', blank.bootstrap_servers)}",
            f"    topics: [{_scalar(blank.topic)}]",
            "    start: earliest                   # of a new feed; later runs resume after the last commit",
            "    max_records_per_batch: 1_000_000",
            "    # options: {kafka.max.poll.records: 10000}   # further Kafka client settings",
            "",
            *_decode(blank),
            "",
            *(_expect(blank.rules, blank.table) if blank.rules is not None else ()),
            *_transform(blank),
            "sink:",
            "  iceberg:",
            f"    table: {blank.table}             # created if it is missing",
            f"    # partition_by: [days({instant})]",
            "",
            "trigger: 1 minute                     # time between two commits; or available-now",
            *(_stored_here(blank, blank.warehouse) if blank.warehouse is not None else _stored_in_s3(blank)),
            "",
        ]
    )


def _decode(blank: Blank) -> list[str]:
    found = blank.discovery
    mark = "Known from" if found.certain else "Please check:"
    lines = [f"# {mark} {_comment(found.how)}.", *(["# Fields:"] if found.columns else [])]
    width = max((len(_comment(column.name)) for column in found.columns), default=0) + 2
    lines += [f"#   {_comment(column.name):<{width}}{_comment(column.type)}" for column in found.columns[:MAX_FIELDS]]
    if len(found.columns) > MAX_FIELDS:
        lines.append(f"#   … and {len(found.columns) - MAX_FIELDS} more")
    if found.kind == "raw":
        lines += [
            "# raw lands the bytes in one column, value. Formats that have columns:",
            "#   avro: {schema_file: values.avsc}           # Avro without a header",
            "#   protobuf: {schema_file: values.proto, message: Trip}",
            "#   json: {schema_ddl: 'id BIGINT, name STRING'}   # or {schema: sample}",
            "#   csv: {schema_ddl: 'id BIGINT, name STRING'}   # needs the extra csv",
            "#   string: {}",
        ]
    lines.append("decode:")
    if found.kind in ("avro", "protobuf", "json_schema"):
        lines += [f"  {found.kind}:", f"    registry: {_variable('SCHEMA_REGISTRY_URL', blank.registry_url)}"]
        if found.subject is not None:
            lines.append(f"    subject: {_scalar(found.subject)}")
        if found.kind == "protobuf":
            lines.append("    # message: NAME                   # if the values are not the schema's first message")
    elif found.kind == "json":
        lines += ["  json:", f"    schema_ddl: {_quoted(found.ddl or '')}"]
    else:
        lines.append("  raw: {}")
    return [
        *lines,
        "  # Adds the columns kafka_topic, kafka_partition and so on, which name a row's record; also: key, headers.",
        "  metadata: [topic, partition, offset, timestamp]",
    ]


def _expect(rules: Rules, table: str) -> list[str]:
    others = [f"#   {_comment(each)}" for each in rules.left_out]
    return [
        f"# The rules for single records of {_comment(rules.source)}.",
        *(
            ["# Not among them, because it is about many records, or has no condition in SQL:", *others]
            if others
            else []
        ),
        "expect:" if rules.expect else "expect: {}",
        *(f"  {name}: {{rule: {_quoted(rule)}, on_violation: dead_letter}}" for name, rule in rules.expect.items()),
        "dead_letters:",
        f"  table: {table}_dead_letters",
        "",
    ]


def _transform(blank: Blank) -> list[str]:
    text = next((column.name for column in blank.discovery.columns if column.time == "text"), None)
    shown = f"SELECT *, to_timestamp({text}) AS {text}_ts" if text and re.fullmatch(Identifier, text) else "SELECT *"
    return [
        "# A SELECT over the decoded records can change the rows:",
        "# transform:",
        f"#   sql: {shown} FROM {blank.name}",
        "",
    ]


def _stored_here(blank: Blank, folder: Path) -> list[str]:
    return [
        "# Without state the feed needs no checkpoint: its table has its position.",
        f"# checkpoint: {folder}/checkpoints/{blank.name}",
        "",
        "catalogs:",
        f"  {blank.table.split('.')[0]}:",
        f"    warehouse: {_quoted(str(folder))}   # tables on this machine; their catalog is {CATALOG_FILE} there",
    ]


def _stored_in_s3(blank: Blank) -> list[str]:
    catalog = blank.table.split(".")[0]
    bucket = blank.bucket if re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", blank.bucket) else "lake"
    declared = [
        "catalogs:",
        f"  {catalog}:",
        "    type: jdbc                        # or rest",
        "    uri: ${LAKEFEED_CATALOG_URI}",
        "    warehouse: ${LAKEFEED_WAREHOUSE}",
    ]
    known = ["# The catalog lake comes from LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE."]
    return [
        "# Optional without state: the table has the feed's position. Each batch then needs 2 S3 requests less.",
        f"checkpoint: s3a://{bucket}/checkpoints/{blank.name}",
        "",
        "# The S3 store comes from AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        "# To set it here instead:",
        "# s3: {endpoint: '${AWS_ENDPOINT_URL_S3}', access_key: '${AWS_ACCESS_KEY_ID}',",
        "#      secret_key: '${AWS_SECRET_ACCESS_KEY}'}",
        *(known if catalog == "lake" else declared),
    ]


def _variable(name: str, default: str | None) -> str:
    if default is None:
        return f"${{{name}}}"
    if re.fullmatch(r"[A-Za-z0-9.,:/_-]+", default):
        return f"${{{name}:-{default}}}"
    # YAML would misread these characters in the default of a variable: write the value without a variable.
    return _quoted(default)


def _comment(text: str) -> str:
    """Return a text from outside for a YAML comment, without unprintable characters, some of which end a comment."""
    return "".join(char if char.isprintable() else "?" for char in str(text)[:120])


def _scalar(text: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z0-9._-]+", text) and yaml.safe_load(text) == text
    return text if is_plain else _quoted(text)


def _quoted(text: str) -> str:
    """Quote a text for YAML; a dollar sign becomes $$, as in all values of a pipeline file."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("$", "$$")
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in escaped) + '"'


def write_new(path: Path, text: str, *, overwrite: bool = False) -> None:
    """Write a file completely or not at all; into a device or pipe, write directly.

    Raises a ConfigError if the file exists and ``overwrite`` is false, or if it cannot be written.
    """
    if not path.absolute().parent.is_dir():
        hint = f"mkdir -p {path.absolute().parent}"
        raise ConfigError("cannot write the file: its folder does not exist", where=str(path), hint=hint)
    try:
        is_written = write_whole(path, text, overwrite=overwrite)
    except OSError as error:
        hint = "choose another place with --file"
        raise ConfigError(f"cannot write the file: {error.strerror}", where=str(path), hint=hint) from None
    if not is_written:
        raise exists(path)


def write_schema_beside(pipeline: Path) -> Path | None:
    """Write the JSON Schema beside a pipeline file and return its path; None if a file of the user has that name."""
    path = pipeline.absolute().parent / FILE_NAME
    if path.exists() and f'"title": "{TITLE}"' not in path.read_text("utf-8", errors="replace"):
        return None
    write_new(path, written(json_schema()), overwrite=True)
    return path


def exists(path: Path) -> ConfigError:
    hint = "choose another file with --file, or overwrite the file with --force"
    return ConfigError("the file exists", where=str(path), hint=hint)
