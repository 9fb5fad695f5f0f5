"""Compare upserts with a MERGE in ``foreachBatch`` on the same records, jars, store and catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed_bench import harness, upsert_jobs, upsert_tables
from lakefeed_bench.harness import Bench, Outcome, Run, median_of, median_ratio, number, only, say
from lakefeed_bench.jobs import LandingCase
from lakefeed_bench.upsert_jobs import WAYS, WORKLOADS, Changes, LandedChanges, Way, Workload

_FILL_MOST = 100_000
_WARM_UP = {"rows": 2_000, "changes": 300, "batch": 100}


@harness.measurement(
    "upserts",
    number("--rows", 300_000, "Keys in the table before the changes; at least 100,000 land per batch."),
    number("--changes", 300_000, "Changes of each workload."),
    number("--batch", 100_000, "Changes per batch."),
    number("--columns", 10, "Columns besides the key."),
    number("--rounds", 3, "Measured rounds, each with new tables."),
    only("--workload", WORKLOADS[1:], into="workloads"),
    only("--way", WAYS, into="ways"),
    click.option("--memory", default="2g", show_default=True, help="spark.driver.memory of every measured process."),
    harness.store_option("s3proxy"),
)
def upserts(bench: Bench, rounds: int, workloads: Sequence[Workload], ways: Sequence[Way], **options: Any) -> Outcome:
    """Compare upserts with a MERGE in foreachBatch.

    Plain Spark merges the newest change of each key. After each workload, pyiceberg and DuckDB read all tables. The way
    append only lands the first keys; debezium lands envelopes. Status 1 if a table's rows are wrong, or if the MERGE is
    faster.
    """
    chosen = [way for way in WAYS if way in (ways or WAYS[:2])]
    loads = [each for each in WORKLOADS if each in (workloads or WORKLOADS) or each == "fill"]
    small = {**options, **{name: min(options[name], most) for name, most in _WARM_UP.items()}}
    runs: list[LandedChanges] = []
    with bench.processes("produce", *chosen) as processes:
        run_round(bench, processes, 0, chosen, loads, small)
        for at in range(1, rounds + 1):
            runs += run_round(bench, processes, at, chosen if at % 2 else chosen[::-1], loads, options)
    results = [_typical(way, load, runs) for load, way in dict.fromkeys((run.workload, run.way) for run in runs)]
    holds = all(each.rows_equal and (each.way != "merge" or (each.time_ratio or 1) >= 1) for each in results)
    names = "workload way seconds cpu_seconds batches batch_seconds batch_requests batch_files s3_requests peak_rss_mb"
    names += " fill_seconds bytes_written pyiceberg_seconds duckdb_seconds time_ratio cpu_ratio rows_equal"
    note = (
        "Medians over the rounds. Ratios: time and CPU time, divided by those of lakefeed's upserts in the same round."
    )
    return Outcome(results=results, text=f"{harness.table(results, names)}\n\n{note}", holds=holds)


def run_round(
    bench: Bench,
    processes: Mapping[str, Run],
    at: int,
    ways: Sequence[Way],
    loads: Sequence[Workload],
    options: Mapping[str, Any],
) -> list[LandedChanges]:
    """Fill a table per way, and land the workloads one after another; the ways take turns within each workload."""
    endpoints, done, results, newest = bench.endpoints, list[Changes](), list[LandedChanges](), dict[Way, int]()
    connections = Connections.from_environment(endpoints.as_environment())
    topics = [topic := f"upserts-{at}", *([f"{topic}-debezium"] if "debezium" in ways else [])]
    for each in topics:
        bench.topics.create(each, partitions=1)
    for load in loads:
        first, keys, batch = sum(each.count for each in done), options["rows"], options["batch"]
        count, most = (keys, max(batch, _FILL_MOST)) if load == "fill" else (options["changes"], batch)
        sizes = {"keys": keys, "columns": options["columns"], "first": first, "count": count, "most": most}
        own = Changes(topic=topic, workload=load, **sizes)
        processes["produce"](upsert_jobs.send, own, endpoints, len(topics) > 1)
        done.append(own)
        expected = upsert_tables.expected_totals(done)
        for way in ways:
            if way == "append" and load != "fill":
                continue
            case = _case(way, at, bench)
            landed: LandedChanges = processes[way](upsert_jobs.land, way, case, own, endpoints, options["memory"])
            stored = open_table(case.table, connections=connections)
            examined = upsert_tables.examined(stored, own.names, expected=expected, since=newest.get(way))
            landed = replace(landed, **examined)
            newest[way] = stored.metadata.snapshots[-1].snapshot_id
            say(
                f"{f'round {at}' if at else 'warm-up'}, {load}, {way}: {landed}, {landed.batch_seconds:.2f} s per batch"
            )
            results.append(landed)
    for way in ways:
        processes[way](upsert_jobs.drop, _case(way, at, bench), topic, endpoints, options["memory"])
    for each in topics:
        bench.topics.delete(each)
    return results


def _case(way: Way, at: int, bench: Bench) -> LandingCase:
    name, bucket = f"upserts_{way}_{at}", bench.endpoints.bucket
    return LandingCase(name=name, bucket=bucket, manager="spark" if way == "merge" else "lakefeed", sink="iceberg")


def _typical(way: Way, load: Workload, runs: Sequence[LandedChanges]) -> LandedChanges:
    own, ours = ([run for run in runs if (run.way, run.workload) == (each, load)] for each in (way, "lakefeed"))
    return replace(
        median_of(own),
        rows_equal=all(run.rows_equal for run in own),
        time_ratio=median_ratio(own, ours, lambda run: run.seconds) if ours else None,
        cpu_ratio=median_ratio(own, ours, lambda run: run.cpu_seconds) if ours else None,
    )
