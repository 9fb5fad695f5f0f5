"""Read the tables of ``lakefeed-bench upserts`` without Spark, and compute their expected content in DuckDB."""

# ruff: noqa: S608  (no input of a user is in the SQL)
from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lakefeed_bench.upsert_jobs import UNSTEADY, Changes


def expected_totals(done: Sequence[Changes]) -> tuple[int, int]:
    """Return the number of rows that the table must have after the changes, and the sum of the rows' hashes."""
    import duckdb

    changes, deleted = list[str](), ["false"]
    for each in done:
        end = each.first + each.count
        changes.append(f"SELECT i, {each.key_sql} FROM range({each.first}, {end}) AS numbers(i)")
        if each.operation == "d":
            deleted.append(f"i >= {each.first} AND i < {end}")
    newest = f"SELECT id, max(i) AS i FROM ({' UNION ALL '.join(changes)}) GROUP BY id"
    texts, gone = ", ".join(done[0].texts_sql), " OR ".join(deleted)
    with duckdb.connect() as engine:
        return _totals(engine, f"(SELECT id, {texts} FROM ({newest}) WHERE NOT ({gone}))", done[0].names)


def _totals(engine: Any, rows: str, names: Sequence[str]) -> tuple[int, int]:
    count, hashes = engine.execute(f"SELECT count(*), sum(hash({', '.join(names)})) FROM {rows}").fetchone()
    return int(count), int(hashes or 0)


def examined(table: Any, names: Sequence[str], *, expected: tuple[int, int], since: int | None) -> dict[str, Any]:
    """Return fields of ``LandedChanges``: the times to scan the table, and the sizes of files newer than a snapshot.

    The table is scanned with pyiceberg and DuckDB. DuckDB reads copies of the data files and applies position deletes,
    but it cannot read deletion vectors.
    """
    import duckdb

    with duckdb.connect() as engine, TemporaryDirectory() as folder:
        began = time.monotonic()
        engine.register("rows", table.scan(selected_fields=tuple(names)).to_arrow_batch_reader())
        equal = _totals(engine, "rows", names) == expected
        found: dict[str, Any] = {**_written(table, since), "pyiceberg_seconds": time.monotonic() - began}
        tasks = list(table.scan().plan_files())
        data = [_copy(table, task.file.file_path, folder) for task in tasks]
        deletes = sorted({_copy(table, each.file_path, folder) for task in tasks for each in task.delete_files})
        if all(file.endswith(".parquet") for file in deletes):
            began = time.monotonic()
            rows = f"read_parquet({data}, filename = true, file_row_number = true) AS r"
            if deletes:
                gone = f"(SELECT parse_filename(file_path) AS file, pos FROM read_parquet({deletes})) AS d"
                rows = f"{rows} ANTI JOIN {gone} ON parse_filename(r.filename) = d.file AND r.file_row_number = d.pos"
            equal &= _totals(engine, rows, names) == expected
            found["duckdb_seconds"] = time.monotonic() - began
        return {**found, "rows_equal": equal}


def _written(table: Any, since: int | None) -> dict[str, Any]:
    snapshots = table.metadata.snapshots
    known = [each.snapshot_id for each in snapshots].index(since) + 1 if since is not None else 0
    files, written = list[int](), 0
    for each in snapshots[known:]:
        written += int(each.summary["added-files-size"] or 0)
        added = sum(int(each.summary[f"added-{kind}-files"] or 0) for kind in ("data", "delete"))
        # Skip the commits of upkeep, which replace files, and the commits of fences, which have no files.
        if added and each.summary.operation.value != "replace":
            files.append(added)
    steady = files[min(UNSTEADY, len(files) - 1) :] or [0]
    return {"batch_files": statistics.median(steady), "bytes_written": written}


def _copy(table: Any, location: str, folder: str) -> str:
    """Copy a table's file into the folder, unless the folder has it; a table's file names are unique."""
    target = Path(folder, location.rpartition("/")[2])
    if not target.exists():
        with table.io.new_input(location).open() as file:
            target.write_bytes(file.read())
    return str(target)
