"""Every mistake of a document at once.

pydantic looks at a block's own rules only when all of its keys are right, and at the rules between blocks only when all
blocks are. So what is wrong is replaced by something that is right, and the document is validated again, until nothing
new is found. What is said about a replaced value is not repeated to the user.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from lakefeed.config.base import Complaint, Complaints, OneOf
from lakefeed.config.loading import shape
from lakefeed.config.loading.document import Document
from lakefeed.config.loading.explain import explain, nearest, place_of, problems_of
from lakefeed.config.loading.shape import Place
from lakefeed.config.models import RULES_OF_THE_FILE, PipelineConfig
from lakefeed.config.problem import Problem

# More than a file can have blocks below each other; each round replaces all that the round before has found.
MAX_ROUNDS = 20

# One of these is right for each setting that is a text.
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


@dataclass(frozen=True, kw_only=True)
class Mistakes:
    """What came of validating a document.

    Attributes:
        config: the pipeline, with the replacements in it; None if no replacement was found.
        problems: what is wrong.
        replaced: the places whose value is a replacement.
    """

    config: PipelineConfig | None
    problems: list[Problem] = field(default_factory=list)
    replaced: frozenset[Place] = frozenset()

    def is_noise(self, problem: Problem) -> bool:
        """Whether a later problem only speaks of a replacement."""
        return _speaks_of(problem, self.replaced)


def mistakes_of(document: Document) -> Mistakes:
    """Validates a document until every mistake in it is found."""
    values = copy.deepcopy(document.values)
    replaced: set[Place] = set(document.broken)
    found: dict[tuple[str, str], Problem] = {}
    config: PipelineConfig | None = None
    for _ in range(MAX_ROUNDS):
        between: list[Complaint] = []
        try:
            config = PipelineConfig.model_validate(values, context={RULES_OF_THE_FILE: between})
            problems, changed = problems_of((), between, document), set[Place]()
        except ValidationError as error:
            problems = explain(error, document=document, root=PipelineConfig)
            values, changed = _Repair(values, document).of(error)
        for each in problems:
            if not _speaks_of(each, replaced):
                found.setdefault((each.key, each.what), each)
        if not changed:
            break
        replaced |= changed
    return Mistakes(config=config, problems=list(found.values()), replaced=frozenset(replaced))


def _speaks_of(problem: Problem, replaced: set[Place] | frozenset[Place]) -> bool:
    """Whether a problem is about a replaced value: at its place, or in words of the block around it."""
    key = tuple(problem.key.split(".")) if problem.key else ()
    for place in replaced:
        at = tuple(str(part) for part in place)
        if key[: len(at)] == at:
            return True
        names = [part for part in at if not part.isdigit()]
        if at[: len(key)] == key and names and re.search(rf"\b{re.escape(names[-1].rstrip('s'))}s?\b", problem.what):
            return True
    return False


class _Repair:
    """One round: puts something right in place of each value that an error is about."""

    def __init__(self, values: Any, document: Document) -> None:
        self.values = values
        self.document = document
        self.changed: set[Place] = set()

    def of(self, error: ValidationError) -> tuple[Any, set[Place]]:
        details = [(place_of(each["loc"], PipelineConfig), each) for each in error.errors(include_url=False)]
        # A misspelt key first: what it holds is then looked at under its right name, and is not missing.
        for place, detail in details:
            if detail["type"] == "extra_forbidden":
                self._misspelt(place)
        for place, detail in details:
            cause = detail.get("ctx", {}).get("error")
            if detail["type"] == "extra_forbidden":
                continue
            if isinstance(cause, Complaints):
                for each in cause.complaints:
                    self._replace(place if each.key is None else (*place, each.key))
            else:
                self._replace(place)
        return self.values, self.changed

    def _misspelt(self, place: Place) -> None:
        block = _at(self.values, place[:-1])
        if not isinstance(block, dict) or place[-1] not in block:
            return
        value = block.pop(place[-1])
        self.changed.add(place)
        model = shape.model_of(shape.at(PipelineConfig, place[:-1]))
        near = nearest(str(place[-1]), list(shape.fields(model)) if model else [])
        if near is None and model is not None and issubclass(model, OneOf) and not set(block) & set(model.__kinds__):
            self.changed.add(place[:-1])  # Without a kind there is nothing more to check in this block.
        if near is not None and near not in block:
            block[near] = value
            self.document.rename(place, (*place[:-1], near))

    def _replace(self, place: Place) -> None:
        """Puts something right in a place, or in the nearest one around it that can be written to."""
        while place and not isinstance(_at(self.values, place[:-1]), dict | list):
            place = place[:-1]
        if not place or (_has(self.values, place) and not self._errors(place)):
            return
        model = shape.model_of(shape.at(PipelineConfig, place))
        if model is not None and isinstance(_at(self.values, place), dict) and self._one_key(place, model):
            return
        annotation = shape.at(PipelineConfig, place)
        for candidate in _candidates(annotation, self._default(place)):
            if self._try(place, candidate):
                self.changed.add(place)
                return
        if _has(self.values, place):
            _remove(self.values, place)
            self.changed.add(place)

    def _one_key(self, place: Place, model: type[BaseModel]) -> bool:
        """Makes a block right by leaving one of its keys out, or by adding one."""
        block = _at(self.values, place)
        if any(len(each) > len(place) for each in self._errors(place)):
            return False  # Its own rules were not looked at yet: the errors are of what is within.
        # The later ones first: what a block begins with is rarely what is wrong.
        for key in reversed(list(block)):
            kept = block.pop(key)
            if not self._errors(place):
                self.changed.add((*place, key))
                return True
            block[key] = kept
        for key, known in shape.fields(model).items():
            if key in block:
                continue
            for candidate in _candidates(known.annotation, None):
                if self._try((*place, key), candidate, around=place):
                    self.changed.add((*place, key))
                    return True
        return False

    def _try(self, place: Place, candidate: Any, *, around: Place | None = None) -> bool:
        had, before = _has(self.values, place), _at(self.values, place)
        if not _put(self.values, place, candidate):
            return False
        if not self._errors(place if around is None else around):
            return True
        if had:
            _put(self.values, place, before)
        else:
            _remove(self.values, place)
        return False

    def _errors(self, around: Place) -> list[Place]:
        """Where errors are, at a place and below it."""
        try:
            PipelineConfig.model_validate(self.values, context={RULES_OF_THE_FILE: []})
        except ValidationError as error:
            return [place for place in _places(error) if place[: len(around)] == around]
        return []

    def _default(self, place: Place) -> Any:
        if not place or not isinstance(place[-1], str):
            return None
        model = shape.model_of(shape.at(PipelineConfig, place[:-1]))
        known = shape.fields(model).get(place[-1]) if model else None
        return None if known is None or known.is_required() else known.default


def _places(error: ValidationError) -> Iterator[Place]:
    """Each place that an error is about; of complaints that of the key."""
    for detail in error.errors(include_url=False):
        place = place_of(detail["loc"], PipelineConfig)
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Complaints):
            yield from (place if each.key is None else (*place, each.key) for each in cause.complaints)
        else:
            yield place


def _candidates(annotation: Any, default: Any) -> Iterator[Any]:
    """Values of which one is right for a setting."""
    if isinstance(default, str | int | float | bool) and default != "":
        yield default
    for each in shape.members(annotation):
        if isinstance(each, type) and issubclass(each, BaseModel):
            yield from _blocks(each)
        elif words := shape.choices(each):
            yield from words
        elif each is bool:
            yield from (False, True)
        elif each in (int, float):
            yield from (1, 10, 100, 0.5)
        elif shape.free_form(each) is not None:
            yield {}
        elif items := shape.items(each):
            yield from ([one] for one in _candidates(items, None))
        else:
            yield from _TEXTS


def _blocks(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    """Blocks of a model with as little in them as may be."""
    requested = {name: each for name, each in shape.fields(model).items() if each.is_required()}
    block: dict[str, Any] = {}
    for name, each in requested.items():
        block[name] = next((one for one in _candidates(each.annotation, None) if _fits(model, name, one)), None)
    kinds: Sequence[str] = model.__kinds__ if issubclass(model, OneOf) else ()
    for kind in kinds:
        below = shape.model_of(shape.fields(model)[kind].annotation)
        yield from ({**block, kind: each} for each in (_blocks(below) if below else _TEXTS))
    if not kinds:
        yield block
        for name, each in shape.fields(model).items():
            if name not in block:
                yield from ({**block, name: one} for one in _candidates(each.annotation, None))


def _fits(model: type[BaseModel], name: str, value: Any) -> bool:
    try:
        model.model_validate({name: value})
    except ValidationError as error:
        return not any(detail["loc"][:1] == (name,) for detail in error.errors(include_url=False))
    return True


def _at(values: Any, place: Place) -> Any:
    for part in place:
        if isinstance(values, dict):
            values = values.get(part)
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            return None
    return values


def _has(values: Any, place: Place) -> bool:
    block = _at(values, place[:-1])
    if isinstance(block, list):
        return isinstance(place[-1], int) and place[-1] < len(block)
    return isinstance(block, dict) and place[-1] in block


def _put(values: Any, place: Place, value: Any) -> bool:
    block = _at(values, place[:-1])
    if isinstance(block, list) and not _has(values, place):
        return False
    block[place[-1]] = value
    return True


def _remove(values: Any, place: Place) -> None:
    del _at(values, place[:-1])[place[-1]]
