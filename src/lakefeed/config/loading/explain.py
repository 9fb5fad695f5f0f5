"""What pydantic found wrong → problems with a line, what was expected, and the nearest name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from lakefeed.config.base import Complaint, Complaints, OneOf
from lakefeed.config.loading import shape
from lakefeed.config.loading.document import Document, problem_at
from lakefeed.config.loading.shape import Place, dotted
from lakefeed.config.problem import Problem
from lakefeed.messages.redaction import redacted

EXAMPLES = {
    "name": "name: taxi",
    "source": "source: {kafka: {bootstrap_servers: host:9092, topics: [orders]}}",
    "decode": "decode: raw",
    "sink": "sink: {iceberg: {table: lake.sales.orders}}",
    "checkpoint": "checkpoint: s3a://bucket/checkpoints/orders",
    "source.kafka.bootstrap_servers": "bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}",
    "decode.avro.registry.url": "url: ${SCHEMA_REGISTRY_URL}",
    "sink.iceberg.table": "table: lake.sales.orders",
    "sink.parquet.path": "path: s3a://bucket/orders",
    "sink.jdbc.url": "url: jdbc:postgresql://host/database",
    "sink.jdbc.user": "user: feeder",
    "sink.jdbc.password": "password: ${DATABASE_PASSWORD}",
    "sink.jdbc.table": "table: orders",
    "sink.elasticsearch.url": "url: ${ELASTICSEARCH_URL}",
    "sink.elasticsearch.index": "index: orders",
    "sink.kafka.topic": "topic: orders-by-zip",
    "transform.sql": "sql: SELECT * FROM orders",
    "catalogs.<name>.uri": "uri: ${LAKEFEED_CATALOG_URI}",
}


def explain(error: ValidationError, *, document: Document, root: type[BaseModel]) -> list[Problem]:
    """One problem for each thing that is wrong, in the order of the file."""
    found: dict[tuple[Place, str], list[Problem]] = {}
    details = [
        (place_of(detail["loc"], root), detail)
        for detail in error.errors(include_url=False, include_input=True)
        if detail["type"] == "extra_forbidden" or not _is_noise(place_of(detail["loc"], root), document)
    ]
    replaced = {
        (*place[:-1], near)
        for place, detail in details
        if detail["type"] == "extra_forbidden"
        for near in _near(str(place[-1]), _names_at(root, place[:-1]))
    }
    for place, detail in details:
        if detail["type"] == "missing" and place in replaced:
            continue
        # A union of types brings one error for each member: the first says it for all.
        kind = "expected" if _is_about_type(detail["type"]) else str(detail["msg"])
        found.setdefault((place, kind), _problems(place, detail, document=document, root=root))
    return [_redacted(problem) for problems in found.values() for problem in problems]


def problems_of(place: Place, complaints: Iterable[Complaint], document: Document) -> list[Problem]:
    """The problems that complaints about the value at ``place`` are."""
    return [
        _redacted(_problem(place if each.key is None else (*place, each.key), each.what, each.hint, document, key=True))
        for each in complaints
        if each.key is None or not _is_noise((*place, each.key), document)
    ]


def _is_noise(place: Place, document: Document) -> bool:
    return any(place[: len(broken)] == broken for broken in document.broken)


def place_of(loc: tuple[int | str, ...], root: type[BaseModel]) -> Place:
    """Where an error is: pydantic's ``loc`` without the names of union members and without '[key]'."""
    place: Place = ()
    annotation: Any = root
    for segment in loc:
        below = shape.step(annotation, segment)
        if below is None:
            known_block = shape.model_of(annotation) is not None and segment not in ("[key]",)
            return (*place, segment) if known_block else place
        place, annotation = (*place, segment), below
    return place


def _is_about_type(kind: str) -> bool:
    return kind.endswith(("_type", "_parsing", "_from_float")) or kind in (
        "literal_error",
        "int_parsing_size",
    )


def _problems(place: Place, detail: Any, *, document: Document, root: type[BaseModel]) -> list[Problem]:
    kind, annotation = detail["type"], shape.at(root, place)
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, Complaints):
        return problems_of(place, cause.complaints, document)
    if kind == "extra_forbidden":
        return [_unknown(place, document, root)]
    if kind == "missing":
        block = f" in '{dotted(place[:-1])}'" if place[:-1] else ""
        example = EXAMPLES.get(dotted(_general(place, root)))
        hint = f"for instance  {example}" if example else f"it expects {shape.expected(annotation)}"
        return [_problem(place, f"'{place[-1]}' is missing{block}", hint, document, key=True)]
    name = f"'{place[-1]}'" if place and isinstance(place[-1], str) else f"'{dotted(place)}'"
    if not place:
        name = "a pipeline file"
    if _is_about_type(kind):
        what = f"{name} expects {shape.expected(annotation)}; found {_found(place, detail['input'], document, root)}"
        return [_problem(place, what, _hint_about_type(detail["input"], annotation), document)]
    message = str(cause) if isinstance(cause, ValueError) else _lower(detail["msg"])
    message = re.sub(r"^input should be ", "expects a number ", message)
    if message.startswith("expects"):
        stood = _found(place, detail["input"], document, root)
        return [_problem(place, f"{name} {message}; found {stood}", None, document)]
    return [_problem(place, f"{name}: {message}", None, document, key=isinstance(detail["input"], dict))]


def _hint_about_type(value: Any, annotation: Any) -> str | None:
    if words := shape.choices(annotation):
        near = _near(str(value), words)
        return f"did you mean '{near[0]}'?" if near else None
    return "put it in quotes" if _is_plain(value) and shape.accepts_text(annotation) else None


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _is_plain(value: Any) -> bool:
    return not isinstance(value, str | list | dict) and value is not None


def _found(place: Place, value: Any, document: Document, root: type[BaseModel]) -> str:
    """What stood there; never the value of a secret or of an environment variable."""
    if place in document.secret_places or shape.is_secret(shape.at(root, place)):
        return "something else (not shown: it is a secret)"
    if isinstance(value, dict):
        return "a block"
    if isinstance(value, list):
        return "a list"
    written = document.written.get(place)
    if value is None or value == "":
        return f"nothing (from {written})" if written and "${" in written else "nothing"
    text = written if written is not None else str(value)
    return f"'{text[:60]}…'" if len(text) > 60 else f"'{text}'"


def _general(place: Place, root: type[BaseModel]) -> tuple[str, ...]:
    """A place with ``<name>`` where keys are free."""
    general: tuple[str, ...] = ()
    annotation: Any = root
    for segment in place:
        free = shape.free_form(annotation) is not None
        annotation = shape.step(annotation, segment)
        general = (*general, "<name>" if free else str(segment))
    return general


def _names_at(root: type[BaseModel], place: Place) -> list[str]:
    model = shape.model_of(shape.at(root, place))
    return list(shape.fields(model)) if model else []


def nearest(word: str, names: list[str]) -> str | None:
    """The one name that was probably meant, if there is one."""
    return next(iter(_near(word, names)), None)


def _near(word: str, names: list[str]) -> list[str]:
    """The one name that was probably meant."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[.\- ]", "_", word).lower()
    return difflib.get_close_matches(plain, names, n=1, cutoff=0.7)


def _unknown(place: Place, document: Document, root: type[BaseModel]) -> Problem:
    word, names = str(place[-1]), _names_at(root, place[:-1])
    model = shape.model_of(shape.at(root, place[:-1]))
    if model is not None and issubclass(model, OneOf) and (missing := model.unknown_kind(word)) is not None:
        is_meant_otherwise = word == "<<" or "." in word or _near(word, names) or word in _words(root)
        if not is_meant_otherwise:
            return _problem(place, *missing, document, key=True)
    elsewhere: dict[str, list[str]] = {}
    for other, _ in shape.walk(root):
        elsewhere.setdefault(other[-1], []).append(dotted(other))
    hints = []
    if word == "<<":
        hints.append("merge keys are not read: write the settings out")
    elif word.startswith("kafka."):
        hints.append("Kafka client settings belong in source.kafka.options")
    elif word.startswith("spark."):
        hints.append("Spark settings belong in the block spark")
    elif near := _near(word, names):
        hints.append(f"did you mean '{near[0]}'?")
    if not hints or (word in elsewhere and f"{word}s" not in names):
        meant = word if word in elsewhere else next(iter(_near(word, list(elsewhere))), None)
        if meant is not None and not hints:
            # 'topic' is another block's own word, and more often a slip for 'topics'.
            places = [*elsewhere.get(f"{word}s", []), *elsewhere[meant]]
            hints.append(f"did you mean {' or '.join(dict.fromkeys(places))}?")
        elif meant is not None:
            hints.append(f"'{word}' belongs to {' and '.join(elsewhere[word])}")
    if not hints:
        hints.append(f"known here: {', '.join(names)}" if names else "this block has no options: remove it")
    block = f" in '{dotted(place[:-1])}'" if place[:-1] else ""
    return _problem(place, f"unknown option '{word}'{block}", "; ".join(hints), document, key=True)


def _words(root: type[BaseModel]) -> set[str]:
    """All option names."""
    return {place[-1] for place, _ in shape.walk(root)}


def _problem(place: Place, what: str, hint: str | None, document: Document, *, key: bool = False) -> Problem:
    return problem_at(document.locate(place, key=key), place, what, hint=hint)


def _redacted(problem: Problem) -> Problem:
    """Whatever a validator has said, a secret's text does not get out."""
    hint = redacted(problem.hint) if problem.hint else None
    return replace(problem, what=redacted(problem.what), hint=hint)
