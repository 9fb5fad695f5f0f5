"""``pipeline.yaml`` → ``PipelineConfig``, or every mistake in it with its line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import Node

from lakefeed.config.blocks import SinkChoice
from lakefeed.config.columns import missing_columns
from lakefeed.config.decoding import Encoded
from lakefeed.config.functions import function_problems
from lakefeed.config.installed_sinks import UnreadSinkConfig, without_imports
from lakefeed.config.loading import overrides as override
from lakefeed.config.loading.document import Document, convert
from lakefeed.config.loading.mistakes import Mistakes, mistakes_of
from lakefeed.config.loading.nodes import MAX_BYTES, Unreadable, compose
from lakefeed.config.models import PipelineConfig
from lakefeed.config.plain_text import plain_text_logins
from lakefeed.config.problem import Problem, errors_of, raise_first_error
from lakefeed.errors import ConfigError

__all__ = ["Problem", "Reading", "load", "problems", "read"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What came of reading a pipeline file.

    Attributes:
        config: the pipeline; None if any problem is an error, or a value was not looked at.
        mistakes: the same with something else in place of what is wrong; None if the text is no YAML.
        problems: errors and warnings, in the order of the file.
        document: the values and where they stand, empty if the text is no YAML.
    """

    config: PipelineConfig | None
    mistakes: Mistakes | None
    problems: list[Problem]
    document: Document


def load(path: Path, *, overrides: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Reads a pipeline.

    Args:
        path: the pipeline file; relative paths in it start at its folder.
        overrides: ``path=value`` pairs as given to ``--set``, applied in order.
        environment: where ``${NAME}`` comes from.

    Raises:
        ConfigError: with every mistake in the file, its line and what to do about it.
    """
    reading = read(path, overrides=overrides, environment=environment)
    raise_first_error(reading.problems)
    assert reading.config is not None  # no errors: read() has built it
    return reading.config


def problems(
    path: Path, *, overrides: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> tuple[PipelineConfig | None, list[Problem]]:
    """As ``load``, but hands the problems back, warnings too. No pipeline if any of them is an error."""
    reading = read(path, overrides=overrides, environment=environment)
    return reading.config, reading.problems


def read(path: Path, *, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = os.environ) -> Reading:
    """As ``problems``, with the document, which knows where each setting stands.

    Args:
        path: the pipeline file.
        overrides: ``path=value`` pairs.
        environment: where ``${NAME}`` comes from. None reads the file alone: no variable, nothing that is installed.
    """
    with nullcontext() if environment is not None else without_imports():
        return _read(path, overrides, environment)


def _read(path: Path, overrides: Sequence[str], environment: Mapping[str, str] | None) -> Reading:
    name = str(path)
    found: list[Problem] = []
    try:
        node = compose(_text(path), name=name)
        if node is None:
            raise Unreadable(Problem(what="the file is empty", file=name, line=1, column=1, hint=_BEGIN))
        node = _overridden(node, overrides, found)
        document = convert(node, root=PipelineConfig, folder=path.absolute().parent, environment=environment, name=name)
    except Unreadable as unreadable:
        return Reading(config=None, mistakes=None, problems=[*found, unreadable.problem], document=Document())
    found += document.problems
    mistakes = mistakes_of(document)
    found += mistakes.problems
    if (config := mistakes.config) is not None:
        later = _catalog_problems(config, document, environment) + _subject_problems(config, document)
        named = [
            *missing_columns(config),
            *_unread_sinks(config),
            *function_problems(config, path.absolute().parent, static=environment is None),
        ]
        if not errors_of([*found, *later]):
            named += plain_text_logins(config, config.connections(environment or {}))
        later += [document.located(each) for each in named]
        found += [each for each in later if not mistakes.is_noise(each)]
    found.sort(key=lambda problem: (problem.line is None, problem.line or 0, problem.column or 0))
    good = not errors_of(found) and not mistakes.replaced
    return Reading(config=config if good else None, mistakes=mistakes, problems=found, document=document)


def _unread_sinks(config: PipelineConfig) -> list[Problem]:
    """Warn of sinks of other packages, whose options were not looked at."""
    return [
        Problem(
            what=f"the options of the sink '{sink.kind}' were not checked: they are known to another package",
            key=f"{place}.{sink.kind}",
            hint="lakefeed check without --static imports it",
            severity="warning",
        )
        for place, sink in config.sink_blocks
        if isinstance(sink.chosen, UnreadSinkConfig)
    ]


def _catalog_problems(
    config: PipelineConfig, document: Document, environment: Mapping[str, str] | None
) -> list[Problem]:
    """The sinks' catalogs must be declared in the file or named by the environment."""
    try:
        known = config.connections(environment or {}).catalogs
    except ConfigError as error:
        return [Problem(what=error.what, file=error.where, hint=error.hint)]
    found = []
    blocks: dict[tuple[str, ...], SinkChoice] = {
        ("sink",): config.sink,
        **{("sinks", name): each for name, each in config.sinks.items()},
    }
    for at, block in blocks.items():
        sink = block.iceberg
        if sink is None or sink.catalog in known or (environment is None and sink.catalog == "lake"):
            continue
        place = (*at, "iceberg", "table")
        document.add(
            f"'{sink.table}': no catalog is called '{sink.catalog}'",
            place=place,
            location=document.locate(place),
            hint=f"known: {', '.join(known) or 'none'}; declare catalogs.{sink.catalog}, or set LAKEFEED_CATALOG_URI "
            "and LAKEFEED_WAREHOUSE, which name the catalog 'lake'",
        )
        found.append(document.problems[-1])
    return found


def _subject_problems(config: PipelineConfig, document: Document) -> list[Problem]:
    """With a pattern of topics it has to be said whose schema the table has."""
    kafka, found = config.source.kafka, []
    if kafka is None or kafka.topics is not None or config.has_many_tables:
        return []
    parts: list[tuple[Encoded | None, tuple[str, ...], str]] = [
        (config.decode, ("decode",), "value"),
        (config.decode.key, ("decode", "key"), "key"),
    ]
    for encoded, place, part in parts:
        if encoded is None or encoded.registry is None or encoded.subject:
            continue
        if encoded.avro is not None and encoded.avro.schema_file is not None:
            continue
        at = (*place, encoded.kind)
        document.add(
            "with topics_pattern it has to be said whose schema the table has",
            place=at,
            location=document.locate(at, key=True),
            hint=f"add {'.'.join(at)}.subject: <topic>-{part} of one of the topics"
            + (f", or {'.'.join(at)}.schema_file" if encoded.kind == "avro" else ""),
        )
        found.append(document.problems[-1])
    return found


_BEGIN = "lakefeed init --topic TOPIC writes one to begin with"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable(Problem(what="there is no such file", file=str(path), hint=_BEGIN)) from None
    except OSError as error:
        raise Unreadable(Problem(what=f"cannot be read: {error.strerror}", file=str(path))) from None
    if len(content) > MAX_BYTES:
        what = f"larger than {MAX_BYTES >> 10} KiB: this is no pipeline file"
        raise Unreadable(Problem(what=what, file=str(path)))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        what = "not UTF-8 text"
        raise Unreadable(Problem(what=what, file=str(path), line=line, column=column)) from None


def _overridden(node: Node, overrides: Sequence[str], found: list[Problem]) -> Node:
    for each in overrides:
        try:
            node = override.apply(node, each, root=PipelineConfig)
        except Unreadable as unreadable:
            found.append(unreadable.problem)
    return node
