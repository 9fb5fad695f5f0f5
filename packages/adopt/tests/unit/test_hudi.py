"""Read the position from Hudi Streamer's commits, as Hudi 0.x (JSON) and 1.x (Avro) store them."""

import io
import json
from pathlib import Path

import fastavro
import pytest

from lakefeed.config.connections import S3
from lakefeed.errors import CheckpointMismatch, ConfigError, ResourceMissing
from lakefeed_adopt.spark_checkpoint import read_hudi_position

V1, V2 = "deltastreamer.checkpoint.key", "streamer.checkpoint.key.v2"
# The part of HoodieCommitMetadata.avsc that has the extra metadata.
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCommitMetadata",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {
                "name": "extraMetadata",
                "type": [
                    "null",
                    {"type": "map", "values": {"type": "string", "avro.java.string": "String"}, "default": None},
                ],
                "default": None,
            },
            {"name": "version", "type": ["int", "null"], "default": 1},
            {"name": "operationType", "type": ["null", {"type": "string", "avro.java.string": "String"}]},
        ],
    }
)


def as_json(**extra: str) -> bytes:
    return json.dumps({"partitionToWriteStats": {}, "extraMetadata": extra, "operationType": "UPSERT"}).encode()


def as_avro(**extra: str) -> bytes:
    written = io.BytesIO()
    fastavro.writer(written, SCHEMA, [{"extraMetadata": extra, "version": 1, "operationType": "UPSERT"}])
    return written.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        path = folder / ".hoodie" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return f"file://{folder}"


def test_the_position_is_read_from_the_newest_complete_commit_of_hudi_0(tmp_path: Path) -> None:
    place = write(
        tmp_path,
        {
            "20261101000000000.commit": as_json(**{V1: "trips,0:5,1:7"}),
            "20261102000000000.deltacommit": as_json(**{V1: "trips,0:9,1:8", "schema": "{}"}),
            "20261102000000000.deltacommit.inflight": b"",
            # A clustering also makes a commit, which does not change the position.
            "20261103000000000.replacecommit": as_json(schema="{}"),
            "20261104000000000.deltacommit.requested": b"",
            "20261104000000000.deltacommit.inflight": as_json(**{V1: "trips,0:99,1:99"}),
            "20261105000000000.clean": b"Obj\x01",
            "hoodie.properties": b"",
        },
    )
    found = read_hudi_position(place, s3=S3())
    assert found.offsets == {("trips", 0): 9, ("trips", 1): 8}
    assert found.place.endswith("/.hoodie/20261102000000000.deltacommit")
    assert found.written_at is not None


def test_the_position_is_read_from_the_newest_complete_commit_of_hudi_1(tmp_path: Path) -> None:
    place = write(
        tmp_path,
        {
            "timeline/20261101000000000_20261101000005000.deltacommit": as_avro(**{V1: "a.b-c,0:5"}),
            "timeline/20261102000000000_20261102000005000.deltacommit": as_avro(**{V2: "a.b-c,0:12"}),
            "timeline/20261103000000000.deltacommit.inflight": as_avro(**{V2: "a.b-c,0:99"}),
            "20261001000000000.commit": as_json(**{V1: "old,0:1"}),
        },
    )
    assert read_hudi_position(place, s3=S3()).offsets == {("a.b-c", 0): 12}


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (as_json(**{V1: "20260101000000"}), ConfigError, "another source than a topic"),
        (as_json(**{V1: "t,0:1:2"}), ConfigError, "another source than a topic"),
        (as_json(), ResourceMissing, "no commit of the table has a checkpoint of Hudi Streamer"),
        (b"", ResourceMissing, "no commit of the table has a checkpoint of Hudi Streamer"),
        (b"{", CheckpointMismatch, "cannot be read"),
        (b"Obj\x01broken", CheckpointMismatch, "cannot be read"),
    ],
)
def test_commits_without_a_readable_position_are_refused(
    tmp_path: Path, content: bytes, error: type[Exception], words: str
) -> None:
    place = write(tmp_path, {"20261101000000000.commit": content})
    with pytest.raises(error, match=words):
        read_hudi_position(place, s3=S3())


def test_a_folder_without_a_hudi_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceMissing, match="no finished commit of Hudi"):
        read_hudi_position(f"file://{tmp_path}", s3=S3())
