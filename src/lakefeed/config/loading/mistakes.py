"""Finds all mistakes of a document in one run.

pydantic checks the rules of a block only if all of its keys are valid, and the rules between blocks only if all blocks
are valid. So this module replaces wrong values by valid ones and validates the document again, until a validation finds
nothing new. It drops messages about the values that it has replaced.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from lakefeed.config.base import ConfigProblem, OneOf, nearest
from lakefeed.config.loading import nodes
from lakefeed.config.loading.document import Document
from lakefeed.config.loading.explain import Detail, explain, locate_problems, type_at
from lakefeed.config.loading.nodes import Place
from lakefeed.config.models import CROSS_BLOCK_ERRORS, PipelineConfig, pipeline_model
from lakefeed.config.problem import Problem

# A round replaces the wrong values of one level of blocks. Blocks are nested in fewer levels than this number.
_MAX_ROUNDS = 20

_MOST_PROBLEMS = 200
"""The most problems that a check shows. It bounds the time: each unknown key is compared with all settings."""

_NOTHING = object()

# Each setting that takes text accepts at least one of these texts.
_TEXTS = (
    "x1",
    "1 minute",
    "lake.a.b",
    "s3a://bucket/a",
    "http://localhost:1",
    "localhost:9092",
    "jdbc:postgresql://localhost/d",
    "jdbc:sqlite:/tmp/x",
    "m:f",
    "00:00",
    "1 day",
    ",",
    "id BIGINT",
)


@dataclass(kw_only=True)
class Mistakes:
    """The outcome of validating a document.

    Attributes:
        config: the pipeline with replaced values; None if the replacements did not make it valid.
        replaced: the places whose value was replaced or is unknown.
    """

    config: PipelineConfig | None = None
    problems: list[Problem] = field(default_factory=list)
    replaced: set[Place]

    def is_noise(self, problem: Problem) -> bool:
        """Return whether a problem is about a value that this module has put in, not about one of the file.

        The problem is at the value's place, or at a block around this place, with a text that names the value's key.
        """
        key = tuple(problem.key.split(".")) if problem.key else ()
        for place in self.replaced:
            at = tuple(str(part) for part in place)
            if key[: len(at)] == at:
                return True
            name = next((part.rstrip("s") for part in reversed(at) if not part.isdigit()), None)
            if at[: len(key)] == key and name and re.search(rf"\b{re.escape(name)}s?\b", problem.what):
                return True
        return False


def find_mistakes(document: Document) -> Mistakes:
    mistakes = Mistakes(replaced=set(document.broken))
    problems: dict[tuple[str, str], Problem] = {}
    repair = _Repair(document)
    for _ in range(_MAX_ROUNDS):
        between: list[ConfigProblem] = []
        mistakes.config, details = _validate(repair.values, between)
        for problem in _problems(details, between, document):
            name = problem.key, problem.what
            if not (name in problems or mistakes.is_noise(problem) or repair.causes(problem)):
                problems[name] = problem
        if not (changed := repair.replace_all(details)):
            break
        mistakes.replaced |= changed
        if len(problems) >= _MOST_PROBLEMS:
            what = f"more than {_MOST_PROBLEMS} mistakes: the others are not shown"
            hint = "correct these, and check the file again"
            problems["", what] = Problem(what=what, file=document.locate(()).file, hint=hint)
            break
    mistakes.problems = list(problems.values())
    return mistakes


def _validate(values: Any, between: list[ConfigProblem]) -> tuple[PipelineConfig | None, list[Detail]]:
    try:
        return pipeline_model().model_validate(values, context={CROSS_BLOCK_ERRORS: between}), []
    except ValidationError as error:
        details = [Detail.of(detail) for detail in error.errors(include_url=False)[:_MOST_PROBLEMS]]
        return None, [detail for detail in details if not detail.is_of_other_type]


def _problems(details: list[Detail], between: list[ConfigProblem], document: Document) -> list[Problem]:
    return [*explain(details, document), *locate_problems((), between, document)]


class _Repair:
    """Replaces wrong values of a document by valid ones."""

    def __init__(self, document: Document) -> None:
        self.values = copy.deepcopy(document.values)
        self.document = document
        self.changed: set[Place] = set()
        self.wrong: set[Place] = set(document.broken)
        """The places whose value is wrong by itself, not only by a rule of the block around it."""

    def causes(self, problem: Problem) -> bool:
        """Return whether a replaced value causes a problem, which then vanishes with another valid value."""
        key, before = tuple(problem.key.split(".")) if problem.key else (), self.values
        for place in self.wrong:
            name = ".".join(map(str, place))
            if not isinstance(_at(before, place[:-1]), dict) or name.startswith(problem.key + "."):
                continue
            if nodes.fields(nodes.model_of(type_at(place[:-1]))).get(str(place[-1])) is None:
                continue  # The place is not a setting.
            # Whether another valid value was tried; true for a free text, since few candidates are valid for it.
            tried = isinstance(_at(before, place), str) and not any(map(nodes.choices, nodes.members(type_at(place))))
            for candidate in _candidates(type_at(place), None):
                if _at(before, place) == candidate:
                    continue
                self.values = copy.deepcopy(before)
                _at(self.values, place[:-1])[place[-1]] = candidate
                between: list[ConfigProblem] = []
                _, details = _validate(self.values, between)
                if any(each[: len(place)] == place for detail in details for each in detail.places):
                    continue
                tried = True
                there = {(each.key, each.what) for each in _problems(details, between, self.document)}
                if (problem.key, problem.what) not in there:
                    self.values = before
                    return True
            self.values = before
            # No other value could be tried, so assume that the replaced value causes the problem if both are in one
            # block.
            if not tried and key[: len(place) - 1] == tuple(map(str, place[:-1])) and len(key) == len(place):
                return True
        return False

    def replace_all(self, details: Sequence[Detail]) -> set[Place]:
        """Replace the wrong values by valid ones; return the changed places."""
        self.changed = set()
        # Rename misspelt keys first: the next validation then checks their values and does not report the right names
        # as missing.
        for detail in details:
            if detail.is_misspelt:
                self._rename(detail.place)
        for detail in details:
            if not detail.is_misspelt:
                for place in detail.places:
                    self._replace(place)
                if nodes.model_of(type_at(detail.place)) is None:
                    self.wrong.add(detail.place)
        return self.changed

    def _rename(self, place: Place) -> None:
        block = _at(self.values, place[:-1])
        if not isinstance(block, dict) or place[-1] not in block:
            return
        value = block.pop(place[-1])
        self.changed.add(place)
        model = nodes.model_of(type_at(place[:-1]))
        near = nearest(str(place[-1]), nodes.fields(model))
        if near is None and model is not None and issubclass(model, OneOf) and not set(block) & set(model.kinds()):
            self.changed.add(place[:-1])  # Nothing else of a block can be checked before its kind is known.
        if near is not None and near not in block:
            block[near] = value
            self.document.rename(place, (*place[:-1], near))

    def _replace(self, place: Place) -> None:
        """Put a valid value at a place; if its block does not exist, at the nearest block around it."""
        while place and not isinstance(around := _at(self.values, place[:-1]), dict | list):
            place = place[:-1]
        is_there = bool(place) and _at(self.values, place, _NOTHING) is not _NOTHING
        if not place or (not is_there and isinstance(around, list)) or (is_there and not self._errors(place)):
            return
        annotation = type_at(place)
        model = nodes.model_of(annotation)
        if model is not None and isinstance(_at(self.values, place), dict) and self._change_one_key(place, model):
            return
        own = nodes.fields(nodes.model_of(type_at(place[:-1]))).get(str(place[-1]))
        default = None if own is None or own.is_required() else own.default
        is_right = any(self._try(place, value, around=place) for value in _candidates(annotation, default))
        if not is_right and is_there:
            self._try(place, _NOTHING)

    def _change_one_key(self, place: Place, model: type[BaseModel]) -> bool:
        """Remove or add one key so that a block becomes valid; return whether that succeeded."""
        block = _at(self.values, place)
        if any(len(wrong) > len(place) for wrong in self._errors(place)):
            return False  # Entries of the block are wrong, so pydantic has not checked the block's rules yet.
        # Remove the later keys first, because the first key of a block is rarely wrong.
        if any(self._try((*place, key), _NOTHING, around=place) for key in reversed(list(block))):
            return True
        missing = {key: known for key, known in nodes.fields(model).items() if key not in block}
        return any(
            self._try((*place, key), candidate, around=place)
            for key, known in missing.items()
            for candidate in _candidates(known.annotation, None)
        )

    def _try(self, place: Place, value: Any, *, around: Place | None = None) -> bool:
        """Put a value at a place, or remove the key; undo this and return False if errors remain below ``around``."""
        before = self.values
        self.values = copy.deepcopy(before)
        block = _at(self.values, place[:-1])
        if value is _NOTHING:
            del block[place[-1]]
        else:
            block[place[-1]] = value
        if around is not None and self._errors(around):
            self.values = before
            return False
        self.changed.add(place)
        return True

    def _errors(self, around: Place) -> list[Place]:
        places = [place for detail in _validate(self.values, [])[1] for place in detail.places]
        return [place for place in places if place[: len(around)] == around]


def _candidates(annotation: Any, default: Any) -> Iterator[Any]:
    """Yield values for a setting; at least one of them is valid."""
    if isinstance(default, str | int | float | bool) and default != "":
        yield default
    for each in nodes.members(annotation):
        if nodes.is_model(each):
            yield from _blocks(each)
        elif words := nodes.choices(each):
            yield from words
        elif each is bool:
            yield from (False, True)
        elif each in (int, float):
            yield from (1, 10, 100, 0.5)
        elif nodes.free_form(each) is not None:
            yield {}
        elif items := nodes.items(each):
            yield from ([one] for one in _candidates(items, None))
        else:
            yield from _TEXTS


def _blocks(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    """Yield blocks for a model, with as few entries as possible."""
    fields = nodes.fields(model)
    block: dict[str, Any] = {}
    for name, known in fields.items():
        if known.is_required():
            candidates = _candidates(known.annotation, None)
            block[name] = next((value for value in candidates if _fits(model, name, value)), None)
    kinds: Sequence[str] = model.kinds() if issubclass(model, OneOf) else ()
    for kind in kinds:
        below = nodes.model_of(fields[kind].annotation)
        yield from ({**block, kind: value} for value in (_blocks(below) if below else _TEXTS))
    if not kinds:
        yield block
        for name, known in fields.items():
            if name not in block:
                yield from ({**block, name: value} for value in _candidates(known.annotation, None))


def _fits(model: type[BaseModel], name: str, value: Any) -> bool:
    try:
        model.model_validate({name: value})
    except ValidationError as error:
        return not any(detail["loc"][:1] == (name,) for detail in error.errors(include_url=False))
    return True


def _at(values: Any, place: Place, default: Any = None) -> Any:
    for part in place:
        try:
            values = values[part]
        except (LookupError, TypeError):
            return default
    return values
