"""A rehearsal does not change the feed, even if the rehearsal is killed."""

import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.clients.kafka.groups import group_names, group_offsets
from lakefeed.pipeline import Pipeline
from lakefeed_repair.rehearsal import PREFIX
from lakefeed_repair.rehearse_command import rehearse as command
from tests.support.cli import Running
from tests.support.feed import Feed
from tests.support.rehearsals import blocks, iceberg, land, sql


def state(feed: Feed, pipeline: Pipeline) -> Any:
    """Return what a rehearsal must not change: objects with ETags, tables with metadata, groups with offsets."""
    stack, kafka = feed.stack, pipeline.config.kafka
    client = botocore.session.get_session().create_client(
        "s3",
        region_name=stack.region,
        endpoint_url=stack.s3_endpoint if "://" in stack.s3_endpoint else f"http://{stack.s3_endpoint}",
        aws_access_key_id=stack.access_key,
        aws_secret_access_key=stack.secret_key.get_secret_value(),
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=stack.bucket)
    objects = {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", ())}
    catalog = open_catalog("lake", connections=feed.connections)
    tables = {name: catalog.load_table(name).metadata_location for name in catalog.list_tables(feed.name)}
    group = f"{feed.name}-group"
    groups = sorted(group_names(kafka)), group_offsets(kafka, group, [feed.topic])
    return {key: tag for key, tag in objects.items() if feed.name in key}, tables, groups


def test_a_rehearsal_changes_nothing_of_the_feed_even_if_it_is_killed(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = land(lake, feed)
    old = feed.folder / "old.yaml"
    old.write_text(feed.write_file(**blocks(feed)).read_text())
    new = feed.write_file(**blocks(feed, transform=sql(feed, "* EXCEPT (ms)"), sink=iceberg(feed, sort_by=["id"])))
    before = state(feed, pipeline)
    arguments: list[str | Path] = ["feed", "rehearse", new, "--against", old, "--master", "local[2]"]
    catalog = open_catalog("lake", connections=feed.connections)
    with Running(arguments, feed.environment, feed.folder / "killed.log") as killed:
        killed.wait_until(lambda: any(PREFIX in name for _, name in catalog.list_tables(feed.name)))
        killed.kill()
    left = state(feed, pipeline)
    assert any(PREFIX in key for key in left[0])
    assert {key: tag for key, tag in left[0].items() if PREFIX not in key} == before[0]
    assert {name: at for name, at in left[1].items() if not name[1].startswith(PREFIX)} == before[1]
    allowed = ["--allow", "sent", "--output", "json"]
    feed.export(monkeypatch)
    done = CliRunner().invoke(command, [str(new), "--against", str(old), *allowed, "--allow", "@sort_by"])
    assert done.exit_code == 0, done.output
    assert state(feed, pipeline) == before
    document = json.loads(done.stdout)
    assert (document["new"]["rows"], document["refused"]) == (36, [])
    assert [each["name"] for each in document["differences"]] == ["sent", "@sort_by"]
    assert document["settings"]["sink.iceberg.sort_by"] == [None, "['id']"]
    failed = CliRunner().invoke(command, [str(new), "--against", str(old), "--allow", "sent"])
    assert failed.exit_code == 1, failed.output
    assert "@sort_by: none → identity(id) ASC" in failed.stdout
    assert "differs: @sort_by" in failed.stdout
    assert state(feed, pipeline) == before
