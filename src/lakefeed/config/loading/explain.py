"""Converts pydantic's errors into problems with a line, the expected value and the nearest name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lakefeed import plugins
from lakefeed.config.base import ConfigProblem, ConfigProblems, OneOf, nearest
from lakefeed.config.loading import nodes
from lakefeed.config.loading.document import Document
from lakefeed.config.loading.nodes import Place, dotted
from lakefeed.config.models import pipeline_model
from lakefeed.config.problem import Problem
from lakefeed.errors import install_command
from lakefeed.messages.redaction import redacted

_EXAMPLES = {
    "name": "name: taxi",
    "source": "source: {kafka: {bootstrap_servers: host:9092, topics: [orders]}}",
    "decode": "decode: raw",
    "sink": "sink: {iceberg: {table: lake.sales.orders}}",
    "checkpoint": "checkpoint: s3a://bucket/checkpoints/orders",
    "source.kafka.bootstrap_servers": "bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}",
    "decode.avro.registry.url": "url: ${SCHEMA_REGISTRY_URL}",
    "transform.sql": "sql: SELECT * FROM orders",
    "catalogs.<name>.uri": "uri: ${LAKEFEED_CATALOG_URI}",
}

_WORDINGS = (
    (re.compile(r"input should be "), "expects a number "),
    (re.compile(r"(?:list|dictionary) should have at (least|most) 1 item after .*"), r"expects at \1 1 entry"),
    (re.compile(r"(?:list|dictionary) should have at (least|most) (\d+) items after .*"), r"expects at \1 \2 entries"),
    (re.compile(r"string should have at least 1 character"), "expects text"),
    (re.compile(r"string should have "), "expects text of "),
    (re.compile(r"string should match pattern "), "expects text that matches "),
)
"""By the beginning of pydantic's message, the text that replaces this beginning."""


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One of pydantic's errors, with its place in the file."""

    place: Place
    type: str
    message: str
    input: Any
    cause: Exception | None

    @classmethod
    def of(cls, detail: Any) -> Detail:
        cause = detail.get("ctx", {}).get("error")
        place = _place_of(detail["loc"])
        return cls(place=place, type=detail["type"], message=detail["msg"], input=detail["input"], cause=cause)

    @property
    def is_misspelt(self) -> bool:
        return self.type == "extra_forbidden"

    @property
    def is_about_type(self) -> bool:
        suffixes = ("_type", "_parsing", "_from_float")
        return self.type.endswith(suffixes) or self.type in ("literal_error", "int_parsing_size")

    @property
    def is_of_other_type(self) -> bool:
        """Return whether the error is that a block is not one of the allowed words, where a block is allowed, too."""
        accepts_block = nodes.model_of(type_at(self.place)) is not None
        return self.type == "literal_error" and isinstance(self.input, dict) and accepts_block

    @property
    def places(self) -> list[Place]:
        """The places of the wrong values: the keys that a validator names, or else the place of the error itself."""
        if not isinstance(self.cause, ConfigProblems):
            return [self.place]
        return [_place_below(self.place, problem) for problem in self.cause.problems]


def _place_of(loc: tuple[int | str, ...]) -> Place:
    """Return the place in the file for pydantic's ``loc``; drop its entries for members of unions, and '[key]'."""
    place: Place = ()
    annotation: Any = pipeline_model()
    is_member_named = False
    for segment in loc:
        below = nodes.step(annotation, segment)
        if below is None:
            if nodes.model_of(annotation) is None or segment == "[key]":
                return place
            if is_member_named or len(nodes.members(annotation)) == 1:
                return (*place, segment)
            is_member_named = True
            continue
        place, annotation, is_member_named = (*place, segment), below, False
    return place


def _place_below(place: Place, problem: ConfigProblem) -> Place:
    return place if problem.key is None else (*place, problem.key)


def type_at(place: Place) -> Any:
    """Return the type of the setting at a place; None if there is no such setting."""
    return nodes.at(pipeline_model(), place)


def _names_at(place: Place) -> list[str]:
    return list(nodes.fields(nodes.model_of(type_at(place))))


def explain(details: Sequence[Detail], document: Document) -> list[Problem]:
    """Return a problem for each wrong value, in the order of ``details``."""
    details = [each for each in details if each.is_misspelt or not _is_broken(each.place, document)]
    misspelt = [each.place for each in details if each.is_misspelt]
    meant = {(*place[:-1], nearest(str(place[-1]), _names_at(place[:-1]))) for place in misspelt}
    found: dict[tuple[Place, str], list[Problem]] = {}
    for detail in details:
        if detail.type == "missing" and detail.place in meant:
            continue
        # For a union of types, pydantic reports an error for each member: show the first one only.
        kind = "expected" if detail.is_about_type else detail.message
        found.setdefault((detail.place, kind), _problems_of(detail, document))
    return [problem for problems in found.values() for problem in problems]


def locate_problems(place: Place, problems: Iterable[ConfigProblem], document: Document) -> list[Problem]:
    """Add lines to the problems that a validator reports for the value at ``place``, and hide secrets."""
    return [
        _redacted(document.problem(_place_below(place, problem), problem.what, problem.hint, key=True))
        for problem in problems
        if problem.key is None or not _is_broken((*place, problem.key), document)
    ]


def _is_broken(place: Place, document: Document) -> bool:
    return any(place[: len(broken)] == broken for broken in document.broken)


def _problems_of(detail: Detail, document: Document) -> list[Problem]:
    if isinstance(detail.cause, ConfigProblems):
        return locate_problems(detail.place, detail.cause.problems, document)
    return [_redacted(_problem_of(detail, document))]


def _problem_of(detail: Detail, document: Document) -> Problem:
    place, annotation = detail.place, type_at(detail.place)
    if detail.is_misspelt:
        return _unknown_option(place, document)
    if detail.type == "missing":
        example = _example(place)
        hint = f"for instance  {example}" if example else f"it expects {nodes.expected(annotation)}"
        return document.problem(place, f"'{place[-1]}' is missing{_in_block(place)}", hint, key=True)
    name = "a pipeline file"
    if place:
        name = f"'{place[-1] if isinstance(place[-1], str) else dotted(place)}'"
    if detail.is_about_type:
        what = f"{name} expects {nodes.expected(annotation)}; found {_found(detail, document)}"
        return document.problem(place, what, _hint_about_type(detail.input, annotation))
    is_own = isinstance(detail.cause, ValueError)
    message = str(detail.cause) if is_own else detail.message[:1].lower() + detail.message[1:]
    for pattern, wording in () if is_own else _WORDINGS:
        message = pattern.sub(wording, message, count=1) if pattern.match(message) else message
    if message.startswith("expects"):
        return document.problem(place, f"{name} {message}; found {_found(detail, document)}")
    return document.problem(place, f"{name}: {message}", key=isinstance(detail.input, dict))


def _example(place: Place) -> str | None:
    field = nodes.fields(nodes.model_of(type_at(place[:-1]))).get(str(place[-1]))
    if field is not None and field.examples:
        return f"{place[-1]}: {field.examples[0]}"
    named = ("<name>" if nodes.free_form(type_at(place[:at])) is not None else part for at, part in enumerate(place))
    return _EXAMPLES.get(dotted(tuple(named)))


def _in_block(place: Place) -> str:
    return f" in '{dotted(place[:-1])}'" if place[:-1] else ""


def _hint_about_type(value: Any, annotation: Any) -> str | None:
    if words := nodes.choices(annotation):
        near = nearest(str(value), words)
        return f"did you mean '{near}'?" if near else None
    is_plain = not isinstance(value, str | list | dict) and value is not None
    return "put it in quotes" if is_plain and nodes.accepts_text(annotation) else None


def _found(detail: Detail, document: Document) -> str:
    """Describe the wrong value for a message, without secrets and without values of environment variables."""
    place, value = detail.place, detail.input
    if place in document.secret_places or nodes.is_secret(type_at(place)):
        return "something else (not shown: it is a secret)"
    if isinstance(value, dict):
        return "a block" if value else "an empty block"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    written = document.written.get(place)
    if value is None or value == "":
        return f"nothing (from {written})" if written and "${" in written else "nothing"
    text = written if written is not None else str(value)
    return f"'{text[:60]}…'" if len(text) > 60 else f"'{text}'"


@cache
def all_settings() -> dict[str, list[str]]:
    """Return the dotted paths of all settings, grouped by their last key."""
    places: dict[str, list[str]] = {}
    for place, _ in nodes.walk(pipeline_model()):
        places.setdefault(place[-1], []).append(dotted(place))
    return places


def _unknown_option(place: Place, document: Document) -> Problem:
    word, names = str(place[-1]), _names_at(place[:-1])
    if len(place) == 1 and (extra := plugins.extra_of_key(word)) is not None:
        what = f"the block '{word}' is for a part of lakefeed that is not installed"
        return document.problem(place, what, install_command(extra), key=True)
    near = nearest(word, names)
    elsewhere = all_settings()
    model = nodes.model_of(type_at(place[:-1]))
    if model is not None and issubclass(model, OneOf) and (unknown := model.unknown_kind(word)) is not None:
        has_kind = any((*place[:-1], kind) in document.contents for kind in model.kinds())
        if not (has_kind or word == "<<" or "." in word or near or word in elsewhere):
            return document.problem(place, *unknown, key=True)
    hints = []
    if word == "<<":
        hints.append("merge keys are not read: write the settings out")
    elif word.startswith("kafka."):
        hints.append("Kafka client settings belong in source.kafka.options")
    elif word.startswith("spark."):
        hints.append("Spark settings belong in the block spark")
    elif near:
        hints.append(f"did you mean '{near}'?")
    if word in elsewhere and hints and f"{word}s" not in names:
        hints.append(f"'{word}' belongs to {' and '.join(elsewhere[word])}")
    elif not hints and (meant := word if word in elsewhere else nearest(word, elsewhere)) is not None:
        # Suggest 'topics' first for 'topic': users rarely mean the setting 'topic' of another block.
        places = [*elsewhere.get(f"{word}s", []), *elsewhere[meant]]
        few = sorted(dict.fromkeys(places), key=lambda other: other.partition(".")[0] != str(place[0]))[:3]
        hints.append(f"did you mean {' or '.join(few)}?")
    if not hints:
        hints.append(f"known here: {', '.join(names)}" if names else "this block has no options: remove it")
    return document.problem(place, f"unknown option '{word}'{_in_block(place)}", "; ".join(hints), key=True)


def _redacted(problem: Problem) -> Problem:
    hint = redacted(problem.hint) if problem.hint else None
    return replace(problem, what=redacted(problem.what), hint=hint)
