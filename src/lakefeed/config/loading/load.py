"""Loads ``pipeline.yaml`` as a ``PipelineConfig``, or reports all of its mistakes with their lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakefeed.config import trust
from lakefeed.config.checks import (
    function_problems,
    missing_columns,
    missing_jars,
    misspelt_settings,
    plain_text_logins,
    refused_columns,
)
from lakefeed.config.decoding import Encoded
from lakefeed.config.loading.document import Document, Remote, convert
from lakefeed.config.loading.mistakes import Mistakes, find_mistakes
from lakefeed.config.loading.nodes import MAX_BYTES, Unreadable, apply_override, compose, leave_out, put_block
from lakefeed.config.models import PipelineConfig, keys_for_runs, pipeline_model
from lakefeed.config.problem import Problem, errors_of, raise_first_error
from lakefeed.errors import ConfigError

_BEGIN = "lakefeed init --topic TOPIC writes one to begin with"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The outcome of reading a pipeline file.

    Attributes:
        config: the pipeline; None if any problem is an error, or a value is unknown.
        mistakes: the pipeline in which valid values replace the wrong ones; None if the text is not YAML.
        problems: errors and warnings, in the order of the file.
        document: the values with their lines; empty if the text is not YAML.
    """

    config: PipelineConfig | None
    mistakes: Mistakes | None
    problems: list[Problem]
    document: Document


def load(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
    to_run: bool = True,
) -> PipelineConfig:
    """Return the pipeline that ``read`` reads.

    Raises:
        ConfigError: the file has mistakes; the error lists all of them with lines and hints.
    """
    reading = read(path, overrides=overrides, environment=environment, to_run=to_run)
    raise_first_error(reading.problems)
    assert reading.config is not None  # Without errors, ``read`` has set the config.
    return reading.config


def read(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = os.environ,
    remote: Remote | None = None,
    block: tuple[str, Path] | None = None,
    to_run: bool = True,
) -> Reading:
    """Return a pipeline file's configuration, problems and locations.

    Args:
        path: the pipeline file; its folder is the base of relative paths.
        overrides: ``path=value`` texts as for ``--set``; they are applied in this order.
        environment: the variables for ``${NAME}``; None reads the file without any variable.
        remote: the machine that the pipeline will run on, if it is another one; ``environment`` then has the known
            variables of that machine.
        block: a key of the pipeline file, and another file, whose content replaces the block under this key.
        to_run: False ignores the blocks that only a run needs, so that their secrets need no value.
    """
    name, folder = str(path), path.absolute().parent
    problems: list[Problem] = []
    try:
        node = compose(_text(path), name=name)
        if node is None:
            raise Unreadable(Problem(what="the file is empty", file=name, line=1, column=1, hint=_BEGIN))
        for override in overrides:
            try:
                node = apply_override(node, override, root=pipeline_model())
            except Unreadable as unreadable:
                problems.append(unreadable.problem)
        if block is not None:
            key, file = block
            if (added := compose(_text(file, hint=None), name=str(file))) is None:
                raise Unreadable(Problem(what="the file is empty", file=str(file), line=1, column=1))
            node = put_block(node, key, added, root=pipeline_model()) or node
        if not to_run:
            node = leave_out(node, keys_for_runs())
        root = pipeline_model()
        document = convert(node, root=root, folder=folder, environment=environment, name=name, remote=remote)
    except Unreadable as unreadable:
        return Reading(config=None, mistakes=None, problems=[*problems, unreadable.problem], document=Document())
    problems += document.problems
    mistakes = find_mistakes(document)
    problems += mistakes.problems
    if (config := mistakes.config) is not None:
        if environment is not None and remote is None:
            trust.declare(config.tls)
        later = [*_catalog_problems(config, environment), *_subject_problems(config, document)]
        if not errors_of([*problems, *later]):
            later += plain_text_logins(config, config.connections(environment or {}))
        later += [*missing_columns(config), *refused_columns(config), *missing_jars(config)]
        later += misspelt_settings(config)
        later += function_problems(config, folder, static=environment is None)
        problems += [problem for problem in map(document.located, later) if not mistakes.is_noise(problem)]
    problems.sort(key=lambda problem: (problem.line is None, problem.line or 0, problem.column or 0))
    is_good = not errors_of(problems) and not mistakes.replaced
    return Reading(config=config if is_good else None, mistakes=mistakes, problems=problems, document=document)


def _catalog_problems(config: PipelineConfig, environment: Mapping[str, str] | None) -> Iterator[Problem]:
    """Yield a problem for each sink whose catalog is neither in the file nor in the environment."""
    try:
        known = config.connections(environment or {}).catalogs
    except ConfigError as error:
        yield Problem(what=error.what, file=error.where, hint=error.hint)
        return
    for place, block in config.sink_blocks:
        catalog = block.chosen.catalog_name
        if catalog is None or catalog in known or (environment is None and catalog == "lake"):
            continue
        hint = f"known: {', '.join(known) or 'none'}; declare catalogs.{catalog}, or set LAKEFEED_CATALOG_URI "
        hint += "and LAKEFEED_WAREHOUSE, which name the catalog 'lake'"
        what = f"'{block.chosen.snapshot_table}': no catalog is called '{catalog}'"
        yield Problem(what=what, key=f"{place}.{block.kind}.table", hint=hint)


def _subject_problems(config: PipelineConfig, document: Document) -> Iterator[Problem]:
    """Yield a problem for each registry block without a subject in a pipeline that reads a pattern of topics."""
    kafka = config.source.kafka
    if kafka is None or kafka.topics is not None or config.has_many_tables:
        return
    parts: dict[str, Encoded | None] = {"value": config.decode, "key": config.decode.key}
    for part, encoded in parts.items():
        if encoded is None or encoded.registry is None or encoded.subject:
            continue
        if encoded.avro is not None and encoded.avro.schema_file is not None:
            continue
        at = ("decode", encoded.kind) if part == "value" else ("decode", "key", encoded.kind)
        hint = f"add {'.'.join(at)}.subject: <topic>-{part} of one of the topics"
        if encoded.kind == "avro":
            hint += f", or {'.'.join(at)}.schema_file"
        what = "topics_pattern may match several topics, and no subject names the schema of the table"
        yield document.problem(at, what, hint, key=True)


def _text(path: Path, *, hint: str | None = _BEGIN) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable(Problem(what="there is no such file", file=str(path), hint=hint)) from None
    except OSError as error:
        hint = "name a file that this user may read"
        raise Unreadable(Problem(what=f"cannot be read: {error.strerror}", file=str(path), hint=hint)) from None
    if len(content) > MAX_BYTES:
        what = f"larger than {MAX_BYTES >> 10} KiB: this is not a pipeline file"
        raise Unreadable(Problem(what=what, file=str(path), hint=_BEGIN))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        problem = Problem(
            what="not UTF-8 text", file=str(path), line=line, column=column, hint="save the file as UTF-8"
        )
        raise Unreadable(problem) from None
