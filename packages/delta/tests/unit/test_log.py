"""The ledger is read from a table's log without Spark, also from a checkpoint; a damaged log is refused."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefeed.config.connections import Connections
from lakefeed.errors import CheckpointMismatch
from lakefeed_delta.log import TableLog


def domain(number: int, *, name: str = "lakefeed.trips", removed: bool = False) -> dict[str, object]:
    return {"domain": name, "configuration": str(number), "removed": removed}


def write(folder: Path, version: int, *actions: dict[str, object]) -> None:
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in actions)
    (log / f"{version:020}.json").write_text(lines)


def found(folder: Path) -> list[str]:
    return list(TableLog(str(folder), Connections()).entries("lakefeed.trips"))


def checkpoint(folder: Path, version: int, *domains: dict[str, object]) -> None:
    rows = [{"domainMetadata": each} for each in domains]
    pq.write_table(pa.Table.from_pylist(rows), folder / "_delta_log" / f"{version:020}.checkpoint.parquet")


def test_entries_are_yielded_newest_first(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    write(tmp_path, 0, {"protocol": {}})
    for version in (1, 2):
        write(tmp_path, version, {"add": {}}, {"domainMetadata": domain(version)})
    write(tmp_path, 3, {"domainMetadata": domain(9, name="lakefeed.other")})
    assert found(tmp_path) == ["2", "1"]


def test_a_cleaned_log_has_the_newest_entry_in_its_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, 4, {"add": {}})
    checkpoint(tmp_path, 4, domain(3), domain(8, name="lakefeed.other"))
    assert found(tmp_path) == ["3"]
    write(tmp_path, 5, {"domainMetadata": domain(4)})
    assert found(tmp_path) == ["4"]


def test_a_missing_or_torn_version_is_refused(tmp_path: Path) -> None:
    log = TableLog(str(tmp_path), Connections())
    for version in range(4):
        write(tmp_path, version, {"domainMetadata": domain(version)}, {"add": {"stats": "line\u2028separator\x85"}})
    log.require_whole()
    newest = tmp_path / "_delta_log" / f"{3:020}.json"
    newest.write_text('{"domainMetadata": {"dom')
    for read in (log.require_whole, lambda: found(tmp_path)):
        with pytest.raises(CheckpointMismatch, match="version 3 of the table's log is torn"):
            read()
    newest.unlink()
    # Nothing but its checksum shows that the newest version is missing.
    assert found(tmp_path) == ["2", "1", "0"]
    newest.with_suffix(".crc").write_text("{}")
    for read in (log.require_whole, lambda: found(tmp_path)):
        with pytest.raises(CheckpointMismatch, match="version 3 of the table's log is missing, and its checksum is"):
            read()
    write(tmp_path, 3, {"domainMetadata": domain(3)})
    (tmp_path / "_delta_log" / f"{2:020}.json").unlink()
    with pytest.raises(CheckpointMismatch, match="version 2 of the table's log is missing, and version 3 is there"):
        found(tmp_path)
