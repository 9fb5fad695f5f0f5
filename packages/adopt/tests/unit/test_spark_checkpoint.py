"""Read the position from the logs of a Spark checkpoint, or refuse the checkpoint."""

import json
from pathlib import Path

import pytest

from lakefeed.config.connections import S3
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError, ResourceMissing
from lakefeed.ledger.checkpoint import StoredCheckpoint
from lakefeed_adopt.position import OtherPosition
from lakefeed_adopt.spark_checkpoint import read_spark_checkpoint

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


def offsets(*at: int, topic: str = "t") -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(at)}})


def write(folder: Path, **more: str) -> StoredCheckpoint:
    """Write a checkpoint whose batch 0 ended at 5 and 7 and whose batch 1 is open.

    ``more`` replaces files by name; an empty text removes the file.
    """
    files = {
        "metadata": '{"id":"q"}',
        "sources/0/0": f"\0v1\n{offsets(0, 0)}",
        "offsets/0": HEAD + offsets(5, 7),
        "offsets/.0.crc": "",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "offsets/1": HEAD + offsets(9, 7, 3),
        **more,
    }
    for name, text in files.items():
        if text:
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_text(text)
    return StoredCheckpoint(f"file://{folder}", s3=S3())


def read(files: StoredCheckpoint) -> OtherPosition:
    return read_spark_checkpoint(files, where="here")


def test_a_batch_without_a_commit_file_is_open(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert found.offsets == {("t", 0): 5, ("t", 1): 7}
    assert found.open_batch == {("t", 0): 9, ("t", 1): 7, ("t", 2): 3}
    assert (found.batch_id, found.query_id) == (1, "q")
    assert found.written_at is not None


def test_the_end_of_a_committed_batch_is_the_position(tmp_path: Path) -> None:
    found = read(write(tmp_path, **{"commits/1": "v1\n{}"}))
    assert (found.offsets, found.open_batch) == ({("t", 0): 9, ("t", 1): 7, ("t", 2): 3}, None)


def test_an_open_first_batch_begins_at_the_start_offsets_of_the_source(tmp_path: Path) -> None:
    found = read(write(tmp_path, **{"commits/0": "", "offsets/1": "", "sources/0/0": f"\0v1\n{offsets(2, 0)}"}))
    assert (found.offsets, found.open_batch) == ({("t", 0): 2, ("t", 1): 0}, {("t", 0): 5, ("t", 1): 7})


def test_the_position_contains_all_sources_of_a_query(tmp_path: Path) -> None:
    found = read(write(tmp_path, **{"offsets/1": HEAD + offsets(9, 7) + "\n-\n" + offsets(4, topic="u")}))
    assert found.open_batch == {("t", 0): 9, ("t", 1): 7, ("u", 0): 4}


@pytest.mark.parametrize(
    ("files", "error", "text"),
    [
        ({"metadata": ""}, ResourceMissing, "no checkpoint of Structured Streaming"),
        ({"metadata": "{"}, CheckpointMismatch, "'metadata' is gone or broken"),
        ({"lakefeed.json": "{}"}, ConfigError, "a feed of lakefeed"),
        ({"state/0/0/1.delta": "x"}, ConfigError, "keeps state"),
        ({"offsets/1": HEAD + '{"logOffset":3}'}, ConfigError, "not Kafka"),
        ({"offsets/1": HEAD + offsets(9) + "\n" + offsets(8)}, ConfigError, "several sources of the job read t-0"),
        ({"offsets/1": "v1"}, CheckpointMismatch, "'offsets/1' is gone or broken"),
        ({"offsets/0": "", "commits/0": ""}, CheckpointMismatch, "'offsets/0' is gone or broken"),
        ({"commits/0": "", "offsets/1": "", "sources/0/0": ""}, CheckpointMismatch, "'sources/0/0' is gone or broken"),
        ({"offsets/0": "", "commits/0": "", "offsets/1": ""}, ResourceMissing, "has planned no batch yet"),
    ],
)
def test_unusable_checkpoints_are_refused(
    tmp_path: Path, files: dict[str, str], error: type[LakefeedError], text: str
) -> None:
    with pytest.raises(error, match=text):
        read(write(tmp_path, **files))
