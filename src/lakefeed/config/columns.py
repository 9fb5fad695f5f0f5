"""The columns that rows have, as far as the pipeline file says; and the settings that name columns."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lakefeed.config import upserts
from lakefeed.config.blocks import PipelineBlocks, SinkChoice
from lakefeed.config.ddl import columns_of_ddl
from lakefeed.config.decoding import Encoded
from lakefeed.config.keyed import DELETED
from lakefeed.config.problem import Problem

MAX_FILE_BYTES = 10 << 20


def missing_columns(config: PipelineBlocks, columns: Sequence[str] | None = None) -> list[Problem]:
    """Settings that name a column which the rows do not have; none where the columns are not known.

    Args:
        config: the pipeline.
        columns: those of the values, where they are known from elsewhere. Default: as the file says.
    """
    decoded = decoded_columns(config) if columns is None else [*columns, *_added(config)]
    if decoded is None:
        return []
    found = list(_not_there(_before_the_transform(config), decoded))
    if config.transform is None:
        for place, sink in config.sink_blocks:
            found += _not_there(_of_sink(place, sink), decoded)
    return found


def decoded_columns(config: PipelineBlocks) -> list[str] | None:
    """The columns of decoded records, or of the source's rows; None where the file does not tell."""
    source = config.source
    if source.numbered is not None:
        own = None if config.decode.envelope else _of_format(config.decode)
        return None if own is None else [*own, *_added(config)]
    if source.files is not None:
        return columns_of_ddl(source.files.schema_ddl) if source.files.schema_ddl else ["value"]
    if source.format is not None and source.format.schema_ddl:
        return columns_of_ddl(source.format.schema_ddl)
    if source.rate is not None:
        return ["timestamp", "value"]
    return None


def _of_format(decode: Encoded) -> list[str] | None:
    if decode.raw is not None or decode.string is not None:
        return ["value"]
    given = decode.json_ or decode.csv
    if given is not None and given.schema_ddl is not None:
        return columns_of_ddl(given.schema_ddl)
    file = given.schema_file if given is not None else decode.avro.schema_file if decode.avro is not None else None
    return None if file is None else _of_file(file)


def _of_file(file: Path) -> list[str] | None:
    """The fields of an Avro record or of a Spark schema; None for what cannot be read, which others report."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            return None
        document: Any = json.loads(file.read_text("utf-8"))
        return [str(each["name"]) for each in document["fields"]]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None


def _added(config: PipelineBlocks) -> list[str]:
    """What stands beside the decoded fields."""
    added = [f"kafka_{name}" for name in upserts.kept_metadata(config)]
    if config.decode.key is not None:
        added.append("kafka_key")
    if upserts.upserting(config) is not None:
        added.append(DELETED)
    return added


def _before_the_transform(config: PipelineBlocks) -> Iterator[tuple[str, str]]:
    transform = config.transform
    if transform is not None and transform.watermark is not None:
        yield "transform.watermark.column", transform.watermark.column
    keyed = upserts.upserting(config)
    if keyed is not None and keyed.delete.column is not None:
        yield f"sink.{config.sink.kind}.delete.column", keyed.delete.column


def _of_sink(place: str, sink: SinkChoice) -> Iterator[tuple[str, str]]:
    """Each setting of a sink that names a column, and the column."""
    block, at = sink.chosen, f"{place}.{sink.kind}"
    for name in ("partition_by", "sort_by"):
        for index, by in enumerate(getattr(block, name, ())):
            yield f"{at}.{name}.{index}", by if isinstance(by, str) else by.column.partition(".")[0]
    for name in ("keys", "order_by"):
        yield from ((f"{at}.{name}.{index}", column) for index, column in enumerate(getattr(block, name, ())))
    if sink.kafka is not None:
        if isinstance(sink.kafka.key, list):
            yield from ((f"{at}.key.{index}", column) for index, column in enumerate(sink.kafka.key))
        if sink.kafka.value.column is not None:
            yield f"{at}.value.column", sink.kafka.value.column.name


def _not_there(named: Iterable[tuple[str, str]], columns: Sequence[str]) -> Iterator[Problem]:
    # Spark compares names so.
    there = {each.lower(): each for each in columns}
    for key, column in named:
        if column.lower() in there:
            continue
        near = difflib.get_close_matches(column.lower(), there, n=1, cutoff=0.7)
        shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
        hint = f"did you mean '{there[near[0]]}'?" if near else f"they have {shown or 'none'}"
        setting = key.split(".")[-2 if key[-1].isdigit() else -1]
        what = f"'{setting}' names the column '{column}', which the rows do not have"
        yield Problem(what=what, key=key, hint=hint)
