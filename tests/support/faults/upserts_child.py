"""A driver that upserts by executors in separate JVMs: ``python -m tests.support.faults.upserts_child``.

The driver reads a folder from stdin, lands batches in a table, kills an executor in some of the batches, and prints how
the table differs from a dictionary with the same changes.
"""

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from tests.support.catalogs import SqliteCase
from tests.support.faults.executors_child import executors
from tests.support.upserts import CATALOG, Upserts

KEYS, CHANGES, BATCHES, KILLED_IN = 30_000, 60_000, 5, (1, 3)


def main() -> None:
    """Land all batches, kill an executor in some of them, and compare the tables."""
    folder = Path(sys.stdin.readline().strip())
    make_catalog(folder / "catalog.db")
    conf = {"spark.driver.memory": "700m", "spark.executor.memory": "1g", "spark.authenticate": "false"}
    spark = session("executors", connections=Connections(), master="local-cluster[2,1,1024]", conf=conf)
    SqliteCase(name=CATALOG, folder=folder).declare(spark)
    spark.sql(f"CREATE NAMESPACE {CATALOG}.ns")
    upserts, draw = Upserts(spark, {}), random.Random(1)
    processes, model, merged = set[int](), dict[int, int](), list[str | None]()
    for batch in range(BATCHES):
        factor, start = draw.randrange(1, KEYS), batch * CHANGES
        rows = spark.range(start, start + CHANGES, 1, 4).selectExpr(
            f"(id * {factor}) % {KEYS} AS id", "'a' AS city", "CAST(id AS STRING) AS v", "'topic' AS kafka_topic",
            "0 AS kafka_partition", "id AS kafka_offset", "id % 10 = 0 AS lakefeed_deleted",
        )  # fmt: skip
        alive = executors(spark)
        processes |= set(alive)
        if batch in KILLED_IN:
            threading.Timer(draw.random() / 2, os.kill, (alive[0], signal.SIGKILL)).start()
        commit = upserts.batch(start, start + CHANGES)
        upserts.table.land(rows.filter("rand() >= 0"), commit, commit_id=f"{upserts.name}{batch}")
        merged.append(upserts.table.merges_because)
        for offset in range(start, start + CHANGES):
            model.pop(offset * factor % KEYS, None)
            if offset % 10:
                model[offset * factor % KEYS] = offset
    found = {row["id"]: row["kafka_offset"] for row in spark.table(upserts.name).toLocalIterator()}
    result = {
        "rows": spark.table(upserts.name).count(),
        "differ": sum(found.get(key) != model.get(key) for key in {*found, *model}),
        "processes": len(processes),
        "merged": merged,
        "notes": upserts.table.take_notes(),
    }
    print(json.dumps(result | {"expected": len(model)}), flush=True)
    sys.stdin.readline()
    spark.stop()


if __name__ == "__main__":
    main()
