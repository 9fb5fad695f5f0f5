"""Generate random pipeline files from the models, valid or with mistakes at known places."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from lakefeed.config.base import OneOf
from lakefeed.config.checks import function_problems, missing_columns
from lakefeed.config.loading import nodes
from lakefeed.config.loading.mistakes import _blocks, _candidates
from lakefeed.config.loading.nodes import Place, dotted
from lakefeed.config.models import PipelineConfig, pipeline_model


@dataclass(frozen=True)
class Mistake:
    """A mistake that the generator made on purpose.

    Attributes:
        kind: the name of the mutation.
        place: a problem must be reported at this place, or in a block around it or inside it.
    """

    kind: str
    place: Place


def is_right(values: Any) -> bool:
    """Check that the models accept the pipeline, which refers to nothing outside the file."""
    try:
        config = PipelineConfig.model_validate(values)
    except ValidationError:
        return False
    named = any(place[-1] in ("schema_file", "ca_file", "topics_pattern") for place, _ in places(values))
    return not (named or any(missing_columns(config)) or any(function_problems(config, Path("/nowhere"))))


def pipeline(dice: random.Random) -> dict[str, Any]:
    """Return a small valid pipeline, extended by random settings that keep the pipeline valid."""
    values: dict[str, Any] = {
        "name": "feed",
        "source": {"kafka": {"bootstrap_servers": "localhost:9092", "topics": ["a", "b"]}},
        "decode": {"json": {"schema_ddl": "id BIGINT, at TIMESTAMP"}},
        "sink": {"iceberg": {"table": "lake.a.b"}},
        "checkpoint": "s3a://lake/c",
        "catalogs": {"lake": {"type": "jdbc", "uri": "jdbc:sqlite:/tmp/x", "warehouse": "s3://lake/w"}},
    }
    fields = [(place, each) for place, each in nodes.walk(pipeline_model()) if "schema_file" not in place[-1]]
    for place, each in dice.sample(fields, k=60):
        at = tuple("a" if part == "<name>" else part for part in place)
        options = list(_some(each.annotation, dice))
        for option in dice.sample(options, k=min(3, len(options))):
            if (changed := _with(values, at, option)) is not None and is_right(changed):
                values = changed
                break
    return values


def _some(annotation: Any, dice: random.Random) -> Iterator[Any]:
    model = nodes.model_of(annotation)
    if model is not None:
        blocks = list(_blocks(model))
        yield from dice.sample(blocks, k=min(4, len(blocks)))
        return
    if (values := nodes.free_form(annotation)) is not None:
        below: list[Any] = list(_some(values, dice)) if nodes.model_of(values) else ["x", "1"]
        yield from ({"a": each} for each in below[:2])
        return
    yield from _candidates(annotation, None)


def _with(values: Any, place: Place, value: Any) -> Any | None:
    """Return a copy with the value set at the place; None if the place's parent does not exist."""
    if not place:
        return value
    if not isinstance(values, dict):
        return None
    if len(place) > 1 and place[0] not in values:
        return None
    below = _with(values.get(place[0]), place[1:], value)
    return None if below is None else {**values, place[0]: below}


def places(values: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield all values with their places."""
    if place:
        yield place, values
    if isinstance(values, dict):
        for key, each in values.items():
            yield from places(each, (*place, key))
    elif isinstance(values, list):
        for index, each in enumerate(values):
            yield from places(each, (*place, index))


def with_mistakes(right: dict[str, Any], dice: random.Random) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the pipeline with 1 to 5 mistakes that are neither inside nor next to each other."""
    values = right
    expected = dice.randint(1, 5)
    made: list[Mistake] = []
    taken: list[Place] = []
    all_places = [place for place, _ in places(right)]
    dice.shuffle(all_places)
    for place in all_places:
        if len(made) == expected:
            break
        if any(_near(place, each) or _near(each, place) for each in taken):
            continue
        kinds = list(MUTATIONS)
        dice.shuffle(kinds)
        for kind in kinds:
            alone, changed = MUTATIONS[kind](right, place), MUTATIONS[kind](values, place)
            # Skip a change that is no mistake, such as a huge number in a setting without an upper limit.
            if alone is not None and changed is not None and not is_right(alone[0]):
                values, where = changed
                made.append(Mistake(kind, where))
                taken.append(place)
                break
    return values, made


def _near(place: Place, other: Place) -> bool:
    """Check whether one place contains the other or both are in one block, where two mistakes may count as one."""
    around = other[:-1]
    return place[: len(around)] == around if around else place[:1] == other[:1]


def _replaced(values: Any, place: Place, value: Any) -> Any:
    if not place:
        return value
    head, rest = place[0], place[1:]
    if isinstance(values, list):
        return [_replaced(each, rest, value) if index == head else each for index, each in enumerate(values)]
    return {key: _replaced(each, rest, value) if key == head else each for key, each in values.items()}


def _model_around(place: Place) -> type[BaseModel] | None:
    return nodes.model_of(nodes.at(pipeline_model(), place[:-1]))


def _misspelt(values: Any, place: Place) -> tuple[Any, Place] | None:
    model = _model_around(place)
    if model is None or not isinstance(place[-1], str) or len(place[-1]) < 5:
        return None
    word = place[-1][:2] + place[-1][3:]
    block = dict(_value(values, place[:-1]))
    renamed = {word if key == place[-1] else key: each for key, each in block.items()}
    return _replaced(values, place[:-1], renamed), (*place[:-1], word)


def _unknown(values: Any, place: Place) -> tuple[Any, Place] | None:
    block = _value(values, place)
    if nodes.model_of(nodes.at(pipeline_model(), place)) is None or not isinstance(block, dict):
        return None
    return _replaced(values, place, {**block, "q\u00fcx": 1}), (*place, "q\u00fcx")


def _wrong_type(values: Any, place: Place) -> tuple[Any, Place] | None:
    annotation = nodes.at(pipeline_model(), place)
    if _model_around(place) is None:
        return None
    wrong: Any = 5 if nodes.model_of(annotation) or nodes.free_form(annotation) else {"a": {"b": [1]}}
    return _replaced(values, place, wrong), place


def _missing(values: Any, place: Place) -> tuple[Any, Place] | None:
    model = _model_around(place)
    if model is None or issubclass(model, OneOf) or not nodes.fields(model)[str(place[-1])].is_required():
        return None
    block = {key: each for key, each in _value(values, place[:-1]).items() if key != place[-1]}
    return _replaced(values, place[:-1], block), place


def _unknown_word(values: Any, place: Place) -> tuple[Any, Place] | None:
    annotation = nodes.at(pipeline_model(), place)
    if not nodes.choices(annotation) or str in nodes.members(annotation) or isinstance(_value(values, place), list):
        return None
    return _replaced(values, place, "no such word"), place


def _number(wrong: Any) -> Any:
    def mutate(values: Any, place: Place) -> tuple[Any, Place] | None:
        if isinstance(_value(values, place), bool) or nodes.members(nodes.at(pipeline_model(), place)) not in (
            (int,),
            (float,),
        ):
            return None
        return _replaced(values, place, wrong), place

    return mutate


def _value(values: Any, place: Place) -> Any:
    for part in place:
        values = values[part]
    return values


MUTATIONS = {
    "misspelt": _misspelt,
    "unknown": _unknown,
    "wrong type": _wrong_type,
    "missing": _missing,
    "unknown word": _unknown_word,
    "huge": _number(10**40),
    "negative": _number(-(10**20)),
    "nan": _number(float("nan")),
}


def text_of(values: Any) -> str:
    """Return the values as YAML without aliases."""

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(values, Dumper=Plain, sort_keys=False, allow_unicode=True)


def is_reported(mistake: Mistake, keys: list[str]) -> bool:
    """Check that one of the problems is at or near the mistake's place."""
    place = dotted(mistake.place)
    return any(key == place or key.startswith(f"{place}.") for key in keys)
