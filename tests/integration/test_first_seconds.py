"""A start sends no S3 request twice: it reads each metadata file of an existing table once."""

import json

import pytest

from tests.support.cli import lakefeed
from tests.support.feed import Feed

# PutObject: the fence's metadata file, the data file, and the commit's manifest, manifest list and metadata file.
# GetObject: the table's metadata file and manifest list.
LEDGER_ALONE = {"PutObject": 5, "GetObject": 2}
WITH_CHECKPOINT = 21


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_run_on_an_existing_table_reads_the_metadata_file_once(feed: Feed, checkpoint: bool) -> None:
    feed.create_topic(partitions=1)
    file = feed.write_file(decode={"json": {"schema_ddl": "id BIGINT"}}, **({} if checkpoint else {"checkpoint": ""}))
    requests: dict[str, int] = {}
    for number in range(2):
        feed.send_ids([number])
        done = lakefeed("run", file, "--once", "--output", "json", environment=feed.environment)
        summary = json.loads(done.stdout)
        assert summary["rows"] == 1
        requests = summary["s3_requests"]
    if checkpoint:
        assert sum(requests.values()) <= WITH_CHECKPOINT, requests
    else:
        assert {name: count for name, count in requests.items() if count} == LEDGER_ALONE
    assert sorted(row["id"] for row in feed.rows()) == [0, 1]
