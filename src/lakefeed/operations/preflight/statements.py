"""SQL of a pipeline file as Spark's parser reads it: no table is looked up, and nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.config.problem import Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakefeed.config.models import PipelineConfig


@dataclass(frozen=True)
class Text:
    """One SQL text of a pipeline file.

    Attributes:
        key: its setting.
        kind: a statement or an expression.
        sql: what is written.
    """

    key: str
    kind: Literal["statement", "expression"]
    sql: str


def texts(config: PipelineConfig) -> Iterator[Text]:
    """Every SQL text of a pipeline."""
    blocks = [("", config.transform, config.expect)]
    for topic, own in (config.tables.topics if config.tables is not None else {}).items():
        blocks.append((f"tables.topics.{topic}.", own.transform, own.expect or {}))
    for place, transform, expect in blocks:
        if transform is not None:
            if transform.sql is not None:
                yield Text(f"{place}transform.sql", "statement", transform.sql)
            for name, step in transform.steps.items():
                if step.sql is not None:
                    yield Text(f"{place}transform.steps.{name}.sql", "statement", step.sql)
        for name, each in expect.items():
            yield Text(f"{place}expect.{name}.rule", "expression", each.rule)
    for place, sink in config.sink_blocks:
        for option, text in sink.chosen.sql_expressions():
            yield Text(f"{place}.{sink.kind}.{option}", "expression", text)


def unparsed(config: PipelineConfig, *, spark: Callable[[], SparkSession]) -> list[Problem]:
    """SQL that does not parse; a session is made only if there is SQL."""
    found = []
    parser: Any = None
    for each in texts(config):
        if parser is None:
            session: Any = spark()
            parser = session._jsparkSession.sessionState().sqlParser()
        if (why := _refused(parser, each)) is not None:
            what = f"Spark cannot read this {'SQL' if each.kind == 'statement' else 'expression'}: {why}"
            found.append(Problem(what=what, key=each.key))
    return found


def _refused(parser: Any, text: Text) -> str | None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import ParseException, PySparkException

    try:
        if text.kind == "statement":
            parser.parsePlan(text.sql)
        else:
            parser.parseExpression(text.sql)
    except ParseException as error:
        lines = str(error).split("\n== SQL", maxsplit=1)[0].split("\n\nJVM stacktrace", maxsplit=1)[0]
        return re.sub(r"\s+", " ", re.sub(r"^\[[\w.]+\]\s*|SQLSTATE: \w+", "", lines)).strip().rstrip(".")
    except (PySparkException, Py4JJavaError) as error:
        return str(error).splitlines()[0]
    return None
