"""One text, planted in each setting of the models that can hold a secret, shows in nothing that is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakefeed.config.loading import shape
from lakefeed.config.loading.load import read
from lakefeed.config.models import pipeline_model
from lakefeed.config.secrets import keeps_secrets
from tests.support.pipeline_text import ENVIRONMENT, GOOD

CANARY = "canary-3f81c2"
SECRETS = sorted(
    place
    for place, field in shape.walk(pipeline_model())
    if shape.is_secret(field.annotation) or keeps_secrets(shape.free_form(field.annotation))
)


def test_the_walk_finds_them() -> None:
    dotted = {".".join(place) for place in SECRETS}
    assert {"s3.secret_key", "catalogs.<name>.token", "catalogs.<name>.properties", "spark"} <= dotted
    assert {"decode.key.avro.registry.password", "sinks.<name>.jdbc.password", "source.kafka.options"} <= dotted
    assert {"transform.tables.<name>.options", "tables.topics.<name>.transform.steps.<name>.options"} <= dotted
    assert len(dotted) > 40


@pytest.mark.parametrize("place", SECRETS, ids=".".join)
def test_what_is_planted_is_known_and_never_shown(place: tuple[str, ...], tmp_path: Path) -> None:
    """In a file that lacks all else, so that each rule of the block has something to say."""
    free = shape.free_form(shape.at(pipeline_model(), place)) is not None
    values: Any = {"a.b": "${CANARY}", "c": ["${CANARY}"]} if free else "${CANARY}"
    for part in reversed(place):
        values = {"a" if part == "<name>" else part: values}
    path = tmp_path / "p.yaml"
    path.write_text(json.dumps(values))
    reading = read(path, environment={**ENVIRONMENT, "CANARY": CANARY})
    assert CANARY in reading.document.secrets
    assert reading.problems
    message = [*map(str, reading.problems), json.dumps([each.as_dict() for each in reading.problems])]
    assert CANARY not in "".join(message)
    assert reading.mistakes is not None
    assert CANARY not in repr(reading.mistakes.config)


def test_the_search_would_find_it(tmp_path: Path) -> None:
    """Where a setting is no secret, the canary is in the model, and what it is made of."""
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace("lake.nyc.trips", "lake.nyc.${CANARY}"))
    reading = read(path, environment={**ENVIRONMENT, "CANARY": "seen"})
    assert "lake.nyc.seen" in repr(reading.config)
    assert reading.document.secrets == set()
