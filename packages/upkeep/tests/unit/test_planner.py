"""Decide from a table's figures which upkeep is due."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from lakefeed_upkeep.actions import LAST, LastUpkeep, expiry, plan
from lakefeed_upkeep.settings import Expire, Upkeep
from lakefeed_upkeep.table_stats import Ancestor, Health, Partition, PartitionKey

NOW = 1_700_000_000.0
DAY = 86_400.0
MB = 1024 * 1024


def partition(name: str, *, small: int = 0, large: int = 0, newest: int = 1, **more: Any) -> Partition:
    facts: dict[str, Any] = {
        "key": PartitionKey(0, (name,), f"day={name}"),
        "files": small + large,
        "bytes": small * MB + large * 512 * MB,
        "small_files": small,
        "small_bytes": small * MB,
        "records": 1000,
        "deleted": 0,
        "newest": newest,
    }
    return Partition(**{**facts, **more})


def table(*partitions: Partition, **more: Any) -> Health:
    facts: dict[str, Any] = {
        "table": "lake.ns.t",
        "location": "s3://lake/ns/t",
        "snapshot_id": 1,
        "target_bytes": 512 * MB,
        "partitions": partitions,
        "sizes": (),
        "delete_files": 0,
        "manifests": 1,
        "manifest_bytes": 1000,
        "snapshots": 1,
        "ancestors": (Ancestor(snapshot_id=1, at=NOW),),
        "metadata_files": 1,
        "metadata_bytes": 1000,
        "properties": {LAST: LastUpkeep(at=NOW, orphans_at=NOW).to_json()},
        "planning_seconds": 0.0,
    }
    return Health(**{**facts, **more})


def steps(health: Health, **settings: Any) -> list[str]:
    asked = settings.pop("asked", False)
    return [each.step for each in plan(health, Upkeep.model_validate(settings), now=NOW, asked=asked).due]


def line(count: int, *, every: float = 60.0, **holders: int) -> tuple[Ancestor, ...]:
    """Return one snapshot a minute, newest first; ``holders`` maps a feed to the depth of its newest commit."""
    depths = {depth: feed for feed, depth in holders.items()}
    return tuple(
        Ancestor(snapshot_id=count - depth, at=NOW - depth * every, holds=depths.get(depth)) for depth in range(count)
    )


def test_plan_compacts_partitions_with_many_small_files_and_the_coldest_partition_comes_first() -> None:
    health = table(
        partition("hot", small=9, newest=30),
        partition("cold", small=5, newest=2),
        partition("few", small=4, newest=1),
        partition("half full", small=3, newest=3, small_bytes=600 * MB),
        partition("one", small=1, small_bytes=600 * MB),
        partition("many deletes", large=1, newest=4, deleted=300),
    )
    found = plan(health, Upkeep(), now=NOW)
    assert [each.key.values[0] for each in found.partitions] == ["cold", "half full", "many deletes", "hot"]
    assert [each.step for each in found.due] == ["compact"]
    assert "17 files of 4 partitions" in found.due[0].why


def test_plan_rewrites_manifests_that_become_fewer_and_ten_or_more_delete_files() -> None:
    assert steps(table(partition("1", small=4, large=9), delete_files=9)) == []
    assert steps(table(delete_files=10)) == ["manifests"]
    assert steps(table(manifests=31)) == ["manifests"]
    assert steps(table(manifests=30)) == []
    # 40 manifests of 8 MB each cannot become fewer.
    assert steps(table(manifests=40, manifest_bytes=40 * 8 * MB)) == []


def test_plan_searches_orphans_once_a_day_and_on_request() -> None:
    def looked(at: float | None) -> Health:
        return table(properties={LAST: LastUpkeep(at=NOW, orphans_at=at).to_json()})

    assert steps(looked(None)) == ["orphans"]
    assert steps(looked(NOW - DAY)) == ["orphans"]
    assert steps(looked(NOW - DAY + 1)) == []
    assert steps(looked(NOW), asked=True) == ["orphans"]
    assert steps(table(properties={LAST: "not JSON"})) == ["orphans"]
    assert steps(table(snapshot_id=None, properties={})) == []


def test_plan_has_only_the_steps_of_the_settings() -> None:
    health = table(partition("1", small=9), manifests=99, properties={}, ancestors=line(20_000), snapshots=20_000)
    assert steps(health) == ["compact", "manifests", "expire", "orphans"]
    assert steps(health, only=["orphans", "compact"]) == ["compact", "orphans"]


@pytest.mark.parametrize(
    ("holders", "goes", "held"),
    [
        ({}, 890, None),
        ({"trips": 0}, 890, None),
        ({"trips": 0, "quiet": 109}, 890, None),
        ({"trips": 0, "quiet": 110}, 889, "quiet"),
        ({"trips": 999, "quiet": 500}, 0, "trips"),
    ],
)
def test_expiry_keeps_the_newest_commit_of_each_feed(holders: dict[str, int], goes: int, held: str | None) -> None:
    found = expiry(line(1000, **holders), Expire(older_than="6540 seconds", keep=10), now=NOW)
    assert (found.snapshots, found.held_for) == (goes, held)


def test_expiry_keeps_the_configured_number_of_snapshots() -> None:
    assert expiry(line(1000), Expire(older_than="1 second", keep=200), now=NOW).snapshots == 800
    assert expiry(line(100), Expire(older_than="1 second", keep=200), now=NOW).snapshots == 0


def test_commits_after_the_plan_do_not_change_the_limit_of_the_expiry() -> None:
    """The limit is a time, so commits between the plan and the expiry do not change it."""
    before = line(100, quiet=50)
    found = expiry(before, Expire(older_than="1 second", keep=10), now=NOW)
    later = (*(Ancestor(snapshot_id=1000 + each, at=NOW + 60 - each) for each in range(40)), *before)
    kept = [each for each in later if each.at >= found.before]
    assert before[50] in kept


def test_no_snapshots_are_kept_for_a_feed_that_stopped_a_month_ago() -> None:
    old = line(5000, every=3600.0, gone=800, trips=0)
    found = expiry(old, Expire(older_than="7 days", keep=10), now=NOW)
    assert found.held_for is None
    assert found.before == NOW - 7 * DAY


def test_the_growth_does_not_include_snapshots_that_replace_files() -> None:
    ancestors = tuple(
        Ancestor(snapshot_id=100 - hour, at=NOW - hour * 3600, files=2, bytes=50, rows=10, replaces=hour % 2 == 1)
        for hour in range(49)
    )
    growth = table(ancestors=ancestors).growth
    assert growth is not None
    assert (growth.days, growth.files, growth.rows, growth.commits) == (2.0, 24, 120, 12)
    assert table().growth is None


@pytest.mark.parametrize(
    ("block", "because"),
    [
        ({"every": "1 hour", "at": "02:00"}, "either every or at"),
        ({"at": "24:00"}, "HH:MM"),
        ({"every": "often"}, "a duration is"),
        ({"orphans": {"older_than": "23 hours"}}, "at least 1 day"),
        ({"expire": {"keep": 1}}, "greater than or equal to 10"),
        ({"only": []}, "at least 1"),
        ({"only": ["sweep"]}, "compact"),
    ],
)
def test_harmful_upkeep_settings_are_refused(block: dict[str, Any], because: str) -> None:
    with pytest.raises(ValidationError, match=because):
        Upkeep.model_validate(block)


def test_nothing_is_rewritten_if_a_feed_writes_to_a_branch() -> None:
    due = {"manifests": 99, "delete_files": 20, "ancestors": line(20_000), "snapshots": 20_000}
    health = table(partition("1", small=9), **due, branches=("staging",))
    assert steps(health) == ["expire"]
    assert steps(health, only=["compact"]) == []


def test_unpublished_snapshots_never_expire() -> None:
    every = DAY
    waiting = [replace(each, is_published=depth >= 30) for depth, each in enumerate(line(200, every=every))]
    found = expiry(tuple(waiting), Expire(older_than="1 day", keep=10), now=NOW)
    assert (found.before, found.snapshots, found.held_for) == (NOW - 29 * every, 170, None)
