"""``lakefeed-bench upserts`` computes the expected rows of a table, and chooses the keys of each workload."""

from __future__ import annotations

import duckdb

from lakefeed_bench.upsert_jobs import Changes, Workload
from lakefeed_bench.upsert_tables import expected_totals


def changes(workload: Workload, first: int, count: int) -> Changes:
    return Changes(topic="t", workload=workload, keys=200, columns=2, first=first, count=count, most=10)


def keys_of(each: Changes) -> list[int]:
    numbers = f"range({each.first}, {each.first + each.count}) AS numbers(i)"
    return [key for (key,) in duckdb.execute(f"SELECT {each.key_sql} FROM {numbers} ORDER BY i").fetchall()]


def test_expected_totals_equal_the_totals_of_the_newest_changes() -> None:
    done: list[Changes] = []
    rows: dict[int, int] = {}
    for workload, count in (("fill", 200), ("inserts", 30), ("updates", 90), ("newest", 20), ("deletes", 50)):
        done.append(changes(workload, sum(each.count for each in done), count))  # type: ignore[arg-type]
        for number, key in enumerate(keys_of(done[-1]), start=done[-1].first):
            rows.pop(key, None)
            if workload != "deletes":
                rows[key] = number
        stored = [(key, f"0-{number * 7}", f"1-{number * 8}") for key, number in rows.items()]
        query = "SELECT count(*), sum(hash(id, c0, c1)) FROM stored"
        with duckdb.connect() as engine:
            engine.execute("CREATE TABLE stored (id BIGINT, c0 VARCHAR, c1 VARCHAR)")
            engine.executemany("INSERT INTO stored VALUES (?, ?, ?)", stored)
            assert engine.execute(query).fetchone() == expected_totals(done), workload


def test_each_workload_changes_the_keys_that_its_name_describes() -> None:
    assert keys_of(changes("fill", 0, 200)) == list(range(200))
    assert keys_of(changes("inserts", 200, 5)) == [200, 201, 202, 203, 204]
    assert set(keys_of(changes("newest", 205, 50))) == {198, 199}
    random = keys_of(changes("updates", 300, 1000))
    assert min(random) >= 0
    assert max(random) < 200
    assert 150 < len(set(random)) <= 200
