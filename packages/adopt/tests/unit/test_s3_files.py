"""Count the records in a file of a Kafka Connect sink for S3, or refuse the file."""

import gzip
import io
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefeed.config.connections import S3
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import StoredCheckpoint
from lakefeed_adopt.s3_files import count_records_of


def avro(count: int) -> bytes:
    written = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    fastavro.writer(written, schema, [{"id": number} for number in range(count)], codec="deflate", sync_interval=64)
    return written.getvalue()


def parquet(count: int) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(count))}), written, row_group_size=7)
    return written.getvalue()


def zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


LINES = "".join(json.dumps({"id": number}) + "\n" for number in range(20)).encode()
CSV = b"\n".join([b"YWJj,Zm9v", b"MTIz,", b""])  # Aiven's sink writes a separator after the last line, too.


def count(folder: Path, name: str, content: bytes) -> int:
    (folder / name).write_bytes(content)
    return count_records_of(StoredCheckpoint(f"file://{folder}", s3=S3()), name, where="here")


@pytest.mark.parametrize(
    ("name", "content", "records"),
    [
        ("t+0+0000000000.avro", avro(50), 50),
        ("t+0+0000000000.snappy.parquet", parquet(50), 50),
        ("t+0+0000000000.json", LINES, 20),
        ("t+0+0000000000.json.gz", gzip.compress(LINES, mtime=0), 20),
        ("t+0+0000000000.json", b"1\n2\n", 2),
        ("t-0-0", LINES.rstrip(b"\n"), 20),
        ("t-0-0.gz", gzip.compress(LINES.rstrip(b"\n"), mtime=0), 20),
        ("t-0-0.zst", zstd(LINES.rstrip(b"\n")), 20),
        ("t-0-0", b'[\n{"value": 1},\n{"value": [2]}\n]', 2),
        ("t-0-0", CSV, 3),
        ("t-0-0.gz", gzip.compress(b"YWJj", mtime=0), 1),
        ("t-0-0.avro", avro(3), 3),
        ("t-0-0", parquet(3), 3),
    ],
)
def test_the_records_of_a_file_are_counted(tmp_path: Path, name: str, content: bytes, records: int) -> None:
    assert count(tmp_path, name, content) == records


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t+0+0000000000.bin", b"\x00\x01\n\x02"),
        ("t+0+0000000000.json", b'{"id":\n1}\n'),
        ("t-0-0", b"a text, with\nline breaks"),
        ("t-0-0.gz", b"not gzip"),
        ("t-0-0.snappy", b"\x82SNAPPY\x00"),
    ],
)
def test_a_file_with_an_unknown_number_of_records_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(ConfigError, match="cannot be counted") as refused:
        count(tmp_path, name, content)
    assert "--from group:connect-NAME" in (refused.value.hint or "")
