"""Checks a pipeline that its models accept: the columns, Python functions, logins and Spark settings of the file."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lakefeed.config import trust, upserts
from lakefeed.config.addresses import PlainTextLogin, over_http
from lakefeed.config.base import leaves
from lakefeed.config.blocks import InstalledSource, PipelineBlocks
from lakefeed.config.connections import Connections
from lakefeed.config.decoding import UNKNOWN_FIELDS, Encoded
from lakefeed.config.kafka_client import MSK_JAR, KafkaClient, over_plain_sasl
from lakefeed.config.keyed import DELETED, name_taken
from lakefeed.config.problem import Problem
from lakefeed.config.sql import columns_of_ddl, types_of_ddl

_MAX_FILE_BYTES = 10 << 20

# Columns.


def missing_columns(config: PipelineBlocks, columns: Sequence[str] | None = None) -> Iterator[Problem]:
    """Yield a problem for each setting that names a missing column; ``columns`` defaults to the declared ones."""
    decoded = decoded_columns(config) if columns is None else [*columns, *_added_columns(config)]
    if decoded is None:
        return
    beside = [*(f"kafka_{name}" for name in upserts.kept_metadata(config)), *_marks(config)]
    for name in decoded[: len(decoded) - len(_added_columns(config))] if config.source.numbered else ():
        if why := name_taken(name, beside):
            yield Problem(what=why, key="decode", hint="rename the field in the application that writes the records")
    # Spark ignores the case of column names.
    known = {column.lower(): column for column in decoded}
    for key, column in _named_columns(config):
        if column.lower() in known:
            continue
        near = difflib.get_close_matches(column.lower(), known, n=1, cutoff=0.7)
        shown = ", ".join(decoded[:20]) + (", …" if len(decoded) > 20 else "")
        hint = f"did you mean '{known[near[0]]}'?" if near else f"the columns are {shown or 'none'}"
        setting = key.split(".")[-2 if key[-1].isdigit() else -1]
        what = f"'{setting}' names the column '{column}', which the rows do not have"
        yield Problem(what=what, key=key, hint=hint)


def refused_columns(config: PipelineBlocks) -> Iterator[Problem]:
    """Yield the sinks' problems with columns that the file declares in DDL, unless a transform may change columns."""
    decode, source = config.decode, config.source
    given = None if decode.envelope else decode.declaring
    declared = {f"decode.{decode.kind}": given, "source.files": source.files, "source.format": source.format}
    for place, block in declared.items() if config.transform is None else ():
        if (ddl := getattr(block, "schema_ddl", None)) is not None:
            yield from refusals(config, types_of_ddl(ddl), place=f"{place}.schema_ddl")


def refusals(config: PipelineBlocks, columns: Sequence[tuple[str, str]], *, place: str) -> Iterator[Problem]:
    """Yield a problem for each column that a sink cannot store; ``place`` is the setting that declares the columns.

    A column is a pair of its dotted path and its DDL type.
    """
    for at, sink in config.sink_blocks:
        for found in sink.chosen.refuses(columns):
            key = place if found.key is None else f"{at}.{sink.kind}.{found.key}"
            yield Problem(what=found.what, key=key, hint=found.hint)


def decoded_columns(config: PipelineBlocks) -> list[str] | None:
    """Return the columns of decoded records or of the source's rows; None if the file does not define them."""
    source = config.source
    if source.numbered is not None:
        own = None if config.decode.envelope else _columns_of_format(config.decode)
        return None if own is None else [*own, *_added_columns(config)]
    if source.files is not None:
        return columns_of_ddl(source.files.schema_ddl) if source.files.schema_ddl else ["value"]
    if source.format is not None and source.format.schema_ddl:
        return columns_of_ddl(source.format.schema_ddl)
    return ["timestamp", "value"] if source.rate is not None else None


def _columns_of_format(decode: Encoded) -> list[str] | None:
    if decode.raw is not None or decode.string is not None:
        return ["value"]
    if decode.json_ is not None and decode.json_.is_whole:
        return ["value"]
    if (ddl := getattr(decode.declaring, "schema_ddl", None)) is not None:
        return columns_of_ddl(ddl)
    file: Path | None = getattr(decode.declaring or decode.avro, "schema_file", None)
    if file is None:
        return None
    # The file has an Avro record schema or a Spark schema. Another check reports an unreadable file.
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            return None
        document: Any = json.loads(file.read_text("utf-8"))
        return [str(field["name"]) for field in document["fields"]]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None


def _added_columns(config: PipelineBlocks) -> list[str]:
    added = [f"kafka_{name}" for name in upserts.kept_metadata(config)]
    if config.decode.key is not None:
        added.append("kafka_key")
    if config.decode.unknown_fields == "variant":
        added.append(UNKNOWN_FIELDS)
    return [*added, *_marks(config)]


def _marks(config: PipelineBlocks) -> list[str]:
    return [] if config.upserting is None else [DELETED]


def _named_columns(config: PipelineBlocks) -> Iterator[tuple[str, str]]:
    """Yield the settings that name columns of decoded records, each with its column."""
    transform = config.transform
    if transform is not None and transform.watermark is not None:
        yield "transform.watermark.column", transform.watermark.column
    keyed = config.upserting
    if keyed is not None and keyed.delete.column is not None:
        yield f"sink.{config.sink.kind}.delete.column", keyed.delete.column
    for place, sink in config.sink_blocks if transform is None else ():
        for option, column in sink.chosen.columns():
            yield f"{place}.{sink.kind}.{option}", column


# Python functions are looked up in the source of their module, without importing it.


def function_problems(config: PipelineBlocks, folder: Path, *, static: bool = False) -> Iterator[Problem]:
    """Yield a problem for each missing function or class; ``static`` searches only the pipeline file's folder."""
    for key, path in named_functions(config):
        if (problem := _function_problem(key, path, folder, static=static)) is not None:
            yield problem


def _blocks(config: PipelineBlocks, name: str) -> Iterator[tuple[str, Any]]:
    places: dict[str, Any] = {f"tables.topics.{topic}.": own for topic, own in config.table_rules.topics.items()}
    for place, holder in {"": config, **places}.items():
        if (block := getattr(holder, name)) is not None:
            yield f"{place}{name}", block


def named_functions(config: PipelineBlocks) -> Iterator[tuple[str, str]]:
    """Yield a pair for each Python function or class that the file names: the setting and the name."""
    for place, transform in _blocks(config, "transform"):
        for name, step in transform.steps.items():
            if step.python is not None:
                yield f"{place}.steps.{name}.python", step.python
    for place, sink in config.sink_blocks:
        for option, path in sink.chosen.functions():
            yield f"{place}.{sink.kind}.{option}", path


def function_modules(config: PipelineBlocks) -> list[str]:
    """Return the modules of the Python functions and classes that the pipeline uses."""
    return [path.partition(":")[0] for _, path in named_functions(config)]


def named_files(block: BaseModel) -> Iterator[Path]:
    return (value for _, value in leaves(block) if isinstance(value, Path))


def _function_problem(key: str, path: str, folder: Path, *, static: bool) -> Problem | None:
    module, _, name = path.partition(":")
    base = folder.joinpath(*module.split("."))
    file = next((file for file in (base / "__init__.py", base.with_suffix(".py")) if file.is_file()), None)
    if file is None and static:
        what, hint = (
            f"{path} was not checked: the function's module is not beside the pipeline file",
            "run the check without --static",
        )
        return Problem(what=what, key=key, hint=hint, severity="warning")
    if file is None:
        # For an installed module, look up only the package: its contents are not visible without an import.
        package = module.partition(".")[0]
        try:
            if importlib.util.find_spec(package) is not None:
                return None
        except (ImportError, ValueError):
            return None
        hint = f"write package.module:name; the module must be in {folder} or on PYTHONPATH"
        return Problem(what=f"there is no Python module {package}", key=key, hint=hint)
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = f"the module {module} cannot be imported: {getattr(error, 'msg', None) or error}"
        return Problem(what=what, key=key, about=f"{file}{line}", hint="correct the Python file")
    except OSError as error:
        what, hint = f"the module {module} cannot be read: {error.strerror}", "let this user read the file"
        return Problem(what=what, key=key, about=str(file), hint=hint)
    names, is_certain = _defined_names(tree)
    if name in names or not is_certain:
        return None
    public = sorted(name for name in names if not name.startswith("_"))
    hint = f"the module defines {', '.join(public[:20]) or 'nothing'}"
    return Problem(what=f"the module {module} has no {name}", key=key, hint=hint)


def _defined_names(tree: ast.Module) -> tuple[set[str], bool]:
    """Return the names that a module defines, and whether these are certainly all of its names."""
    names: set[str] = set()
    certain = True
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                certain = certain and node.name != "__getattr__"
                continue
            case ast.Import() | ast.ImportFrom():
                certain = certain and all(alias.name != "*" for alias in node.names)
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Name(id="exec" | "globals" | "setattr" | "vars"):
                certain = False  # These calls can define names that the source does not show.
        todo += ast.iter_child_nodes(node)
    return names, certain


# Logins that would cross a network without TLS.


def plain_text_logins(config: PipelineBlocks, connections: Connections) -> list[Problem]:
    """Return a warning for each login that crosses a network without TLS."""
    return [
        Problem(what=f"the login {login.why}", key=login.key, about=login.address, hint=login.hint, severity="warning")
        for login in dict.fromkeys(_plain_text_logins(config, connections))
    ]


def _plain_text_logins(config: PipelineBlocks, connections: Connections) -> Iterator[PlainTextLogin]:
    for place, decode in _blocks(config, "decode"):
        for at, encoded in ((place, decode), (f"{place}.key", decode.key)):
            registry = encoded.registry if encoded is not None else None
            if registry is not None and registry.credentials is not None:
                yield from over_http(f"{at}.{encoded.kind}.registry.url", registry.url.split(","))
    if connections.s3.endpoint and connections.s3.access_key is not None:
        yield from over_http("s3.endpoint", (connections.s3.endpoint,))
    if isinstance(connections.source, InstalledSource):
        for login in connections.source.plain_text_logins():
            yield replace(login, key=f"source.{config.source.kind}.{login.key}")
    for name, catalog in connections.catalogs.items():
        at = f"catalogs.{name}"
        if catalog.type == "rest" and catalog.secrets():
            yield from over_http(f"{at}.uri", (catalog.uri,))
            if catalog.credential is not None and catalog.oauth2_server_uri:
                yield from over_http(f"{at}.oauth2_server_uri", (catalog.oauth2_server_uri,))
        if catalog.uri.startswith("jdbc:postgresql:") and catalog.password is not None:
            yield from trust.plain_text_logins(f"{at}.uri", catalog.uri)
    if (source := config.source.kafka) is not None:
        for login in over_plain_sasl(source.bootstrap_servers, source.options):
            yield replace(login, key=f"source.kafka.{login.key}")
    for place, sink in config.sink_blocks:
        for login in sink.chosen.plain_text_logins(brokers=config.brokers):
            yield replace(login, key=f"{place}.{sink.kind}.{login.key}")


def missing_jars(config: PipelineBlocks) -> Iterator[Problem]:
    """If the file names no jars, yield a warning for each login that requires a jar that lakefeed does not have."""
    sinks = ((f"{at}.{sink.kind}", sink.chosen) for at, sink in config.sink_blocks)
    blocks = [("source.kafka", config.source.kafka), *sinks]
    named = {"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"} & config.spark.keys()
    for place, block in blocks:
        login = block.login if isinstance(block, KafkaClient) else None
        if login is not None and login.msk_iam is not None and not named:
            what = f"Spark requires {MSK_JAR} for this login, and the block spark names no jars"
            hint = f"add spark: {{spark.jars.packages: '{MSK_JAR}:…'}}, unless the cluster has the jar"
            yield Problem(what=what, key=f"{place}.login.msk_iam", hint=hint, severity="warning")


FREE = re.compile(
    r"spark\.(hadoop|executorEnv|sql\.catalog|kubernetes|yarn|metrics|ui\.filters|\w+\.param)\b.*|.*\.param\..*"
)
"""Names with these prefixes are not checked: users and other packages choose them."""

_NEAR = 0.93


@cache
def known() -> tuple[str, ...]:
    """Return the names of Spark's settings; ``tools/spark_settings.py`` writes the list."""
    return tuple(files("lakefeed.config").joinpath("spark_settings.txt").read_text("utf-8").split())


def misspelt_settings(config: PipelineBlocks) -> Iterator[Problem]:
    """Yield a warning for each Spark setting that differs from a known one by a letter or two.

    Other unknown names are accepted, because they may be settings of other packages.
    """
    for key in config.spark:
        if key in known() or FREE.fullmatch(key):
            continue
        alike = [each for each in known() if each.count(".") == key.count(".") and abs(len(each) - len(key)) <= 2]
        if near := difflib.get_close_matches(key, alike, n=1, cutoff=_NEAR):
            what = f"Spark has no setting '{key}' and would ignore it"
            yield Problem(what=what, key=f"spark.{key}", hint=f"did you mean {near[0]}?", severity="warning")
