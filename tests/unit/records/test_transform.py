"""The id of a transform."""

from pathlib import Path
from typing import Any

from lakefeed.config.models import PipelineConfig
from lakefeed.records.transform import keeps_no_state, transform_id
from tests.support.pipeline_text import feed_config

KAFKA = {"bootstrap_servers": "b:9092", "topics": ["t"]}


def config(transform: dict[str, Any] | None, **kafka: Any) -> PipelineConfig:
    return feed_config(name="f", source={"kafka": {**KAFKA, **kafka}}, decode="raw", transform=transform)


def steps(**step: Any) -> dict[str, Any]:
    return {"steps": {"one": {"python": "own:f", **step}}}


def test_only_a_pipeline_without_transform_and_deduplication_is_known_to_keep_no_state() -> None:
    assert keeps_no_state(config(None))
    assert not keeps_no_state(config({"sql": "SELECT 1 FROM f"}))
    assert not keeps_no_state(config(None, deduplicate=True))
    assert transform_id(config(None), folder=None) is None


def test_the_transform_id_changes_with_every_part_that_may_change_the_state(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def f(rows): return rows")
    step = config(steps())
    ids = [
        transform_id(config({"sql": "SELECT 1 FROM f"}), folder=tmp_path),
        transform_id(config({"sql": "SELECT 2 FROM f"}), folder=tmp_path),
        transform_id(
            config({"sql": "SELECT 1 FROM f", "watermark": {"column": "c", "delay": "1 minute"}}), folder=tmp_path
        ),
        transform_id(config({"sql": "SELECT 1 FROM f"}, deduplicate=True), folder=tmp_path),
        transform_id(step, folder=tmp_path),
        transform_id(config(steps(options={"n": 3})), folder=tmp_path),
    ]
    assert len(set(ids)) == len(ids)
    assert transform_id(config({"sql": "SELECT 1 FROM f"}), folder=tmp_path) == ids[0]
    own.write_text("def f(rows): return rows.dropDuplicates()")
    assert transform_id(step, folder=tmp_path) not in ids


def test_the_transform_id_ignores_texts_that_may_be_secrets() -> None:
    one, other = (config(steps(options={"password": each})) for each in ("a", "b"))
    assert transform_id(one, folder=None) == transform_id(other, folder=None)
    tables = [{"j": {"format": "jdbc", "options": {"password": each}}} for each in ("a", "b")]
    found = [transform_id(config({"sql": "SELECT 1 FROM f", "tables": each}), folder=None) for each in tables]
    assert found[0] == found[1]
