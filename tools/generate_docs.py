"""Write the documents that are generated from the code; with --check, list documents that are out of date.

To add a document, write a function that returns its text, and add it to DOCUMENTS if it is committed, else to
REFERENCES.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from lakefeed.cli.main import root
from lakefeed.config.base import OneOf, descriptions
from lakefeed.config.kafka_client import CONSUMER, CONSUMER_DEFAULTS, PREFIX, REFUSED_CONSUMER, Option
from lakefeed.config.loading import nodes
from lakefeed.config.models import pipeline_model
from lakefeed.config.schema import json_schema, written
from lakefeed.monitor.metrics.table import METRICS
from lakefeed_deploy.kubernetes.application import read_feed, read_producer
from lakefeed_deploy.kubernetes.objects import RENDERERS, Operator
from lakefeed_deploy.kubernetes.output import manifest
from tools.errors_reference import errors_reference
from tools.pictures import PICTURES
from tools.python_reference import python_reference
from tools.references import DOCS, NAMES, ROOT

_GENERATED = "<!-- Made by tools/generate_docs.py: change the code instead. -->\n"


def pipeline_schema() -> str:
    return written(json_schema())


def pipeline_reference() -> str:
    """Return docs/pipeline-reference.md: all keys with type, default and meaning."""
    lines = [
        _GENERATED,
        "# Reference of pipeline.yaml\n",
        "Every key of a pipeline file, with its type, its default and its meaning. How to write a file, step by step:",
        "[pipeline-files.md](pipeline-files.md). A key whose default is none can be omitted. Every value can contain",
        "`${NAME}` or `${NAME:-default}` from the environment.\n",
        *_table("The file", pipeline_model(), ()),
    ]
    described: dict[type[BaseModel], str] = {}
    repeated: list[tuple[str, ...]] = []
    for place, field in nodes.walk(pipeline_model()):
        values = nodes.free_form(field.annotation)
        model, here = nodes.model_of(field.annotation), place
        if model is None and values is not None:
            model, here = nodes.model_of(values), (*place, "<name>")
        if model is None and (item := _block_of_list(field)) is not None:
            model = item
        if model is None or not (model.model_fields or issubclass(model, OneOf)):
            continue
        if any(here[: len(other)] == other for other in repeated):
            continue
        if model in described:
            repeated.append(here)
            first = described[model]
            lines += [f"## `{nodes.dotted(here)}`\n", f"As [`{first}`](#{_anchor(tuple(first.split('.')))}).\n"]
            continue
        described[model] = nodes.dotted(here)
        lines += _table(f"`{nodes.dotted(here)}`", model, here)
    return "\n".join([*lines, *_kafka_options()])


def _table(title: str, model: type[BaseModel], place: tuple[str, ...]) -> Iterator[str]:
    yield f"## {title}\n"
    yield _paragraphs(model.__doc__) + "\n"
    if issubclass(model, OneOf):
        yield f"Exactly one of {', '.join(f'`{kind}`' for kind in model.kinds())}.\n"
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    described = descriptions(model)
    for name, field in nodes.fields(model).items():
        meaning = _meaning(name, field, place, described.get(name))
        yield f"| `{name}` | {_cell(_type(field))} | {_default(field)} | {_cell(meaning)} |"
    yield ""


def _block_of_list(field: FieldInfo) -> type[BaseModel] | None:
    item = nodes.items(field.annotation)
    return None if item is None else nodes.model_of(item)


def _paragraphs(doc: str | None) -> str:
    return "\n".join(line.strip() for line in (doc or "").strip().splitlines())


def _type(field: FieldInfo) -> str:
    if nodes.model_of(field.annotation) is not None:
        return "block"
    values = nodes.free_form(field.annotation)
    if values is not None and nodes.model_of(values) is not None:
        return "blocks by name"
    if _block_of_list(field) is not None:
        return "a list of blocks"
    words = nodes.expected(field.annotation)
    return f"{words}, from ${{…}}" if nodes.is_secret(field.annotation) else words


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value: Any = field.default
    if value is PydanticUndefined:
        value = field.get_default(call_default_factory=True)
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, BaseModel):
        return "the block's defaults"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _meaning(name: str, field: FieldInfo, place: tuple[str, ...], description: str | None) -> str:
    model = nodes.model_of(field.annotation) or _block_of_list(field)
    meaning = description or _paragraphs(model.__doc__ if model else "").splitlines()[0]
    if model is not None and model.model_fields:
        return f"{meaning} See [`{nodes.dotted((*place, name))}`](#{_anchor((*place, name))})."
    return meaning


def _anchor(place: tuple[str, ...]) -> str:
    return "".join(char for char in nodes.dotted(place).lower() if char.isalnum() or char in "-_")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _kafka_options() -> Iterator[str]:
    yield "## Kafka client settings\n"
    yield "The settings that `source.kafka.options` accepts, with the prefix `kafka.`. Their meaning is in"
    yield "[Kafka's documentation](https://kafka.apache.org/documentation/#consumerconfigs).\n"
    yield "| setting | type | default, if it differs from Kafka's |"
    yield "|---|---|---|"
    for name, option in sorted(CONSUMER.items()):
        default = CONSUMER_DEFAULTS.get(f"{PREFIX}{name}")
        yield f"| `{PREFIX}{name}` | {_option(option)} | {f'`{default}`' if default else ''} |"
    yield "\nRefused settings:\n"
    yield "| setting | reason |"
    yield "|---|---|"
    for name, why in sorted(REFUSED_CONSUMER.items()):
        yield f"| `{PREFIX}{name}` | {_cell(why)} |"
    yield ""


def _option(option: Option) -> str:
    if option.words:
        return f"one of {', '.join(option.words)}"
    return {"int": "a whole number", "number": "a number", "bool": "true or false", "text": "text"}[option.type]


def commands() -> str:
    """Return docs/commands.md: the help of all commands."""
    return "\n".join(
        [
            _GENERATED,
            "# Commands\n",
            "Every command of lakefeed, with its arguments and options.\n",
            *_help(root, "lakefeed"),
        ]
    )


def _help(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    settings = {**root.context_settings, "terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield f"## {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            if found := command.get_command(context, below):
                yield from _help(found, below, context)


def metrics_reference() -> str:
    """Return docs/metrics-reference.md: all metrics with type, labels and meaning."""
    lines = [
        _GENERATED,
        "# Metrics\n",
        "All have the label `feed`. How to read metrics: [metrics.md](metrics.md).\n",
    ]
    lines += ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    rows = (f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {_cell(each.help)} |" for each in METRICS)
    return "\n".join([*lines, *rows, ""])


def _manifest(component: str, operator: Operator) -> Callable[[], str]:
    """Return a function that returns the manifest of a feed or producer in examples/kubernetes, for an operator."""

    def text() -> str:
        file = ROOT / "examples" / "kubernetes" / "pipeline.yaml"
        if component == "feed":
            return manifest(read_feed(file), operator)
        topic, path = "nyc-avro-topic", "s3a://openlake/spark/sample-data/taxi-data.csv"
        return manifest(read_producer(file, arguments=(topic, "--file", path), topic=topic, is_stream=False), operator)

    return text


DOCUMENTS: dict[str, Callable[[], str]] = {
    "schema/pipeline.schema.json": pipeline_schema,
    **{f"kubernetes/taxi-{each}.yaml": _manifest("feed", each) for each in RENDERERS},
    **{f"kubernetes/taxi-producer-{each}.yaml": _manifest("producer", each) for each in RENDERERS},
    **{f"images/{name}.svg": picture for name, picture in PICTURES.items()},
}
"""The documents that are committed, because editors, kubectl and code hosts read them at URLs. A test compares them
with the code."""
REFERENCES: dict[str, Callable[[], str]] = {
    "pipeline-reference.md": pipeline_reference,
    "commands.md": commands,
    "metrics-reference.md": metrics_reference,
    "errors.md": lambda: f"{_GENERATED}\n{errors_reference()}",
    "python-reference.md": lambda: f"{_GENERATED}\n{python_reference()}",
}
"""The documents that are built on demand, by tools/references.py, and not committed."""


def main(arguments: list[str] | None = None) -> int:
    """Write the documents that are out of date, or only list them with --check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a document is out of date")
    parser.add_argument("--references", type=Path, metavar="FOLDER", help="write only the references, into this folder")
    options = parser.parse_args(arguments)
    if not options.check:
        write_references(options.references or DOCS)
    if options.references:
        return 0
    stale = [name for name, text in DOCUMENTS.items() if not (it := DOCS / name).exists() or it.read_text() != text()]
    for name in stale:
        print(f"docs/{name}: {'out of date; run  make docs' if options.check else 'written'}")
        if not options.check:
            path = DOCS / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(DOCUMENTS[name](), "utf-8")
    return 1 if options.check and stale else 0


def write_references(folder: Path) -> None:
    """Write the references; rename each into place, because other processes may read or write the same files."""
    partial = ROOT / "build" / "references"
    partial.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        file = partial / f"{name}.{os.getpid()}"
        file.write_text(REFERENCES[name](), "utf-8")
        shutil.move(file, folder / name)


if __name__ == "__main__":
    sys.exit(main())
