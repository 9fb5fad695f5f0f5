"""The commands of a new user's first hour work, in an empty folder and an environment with only lakefeed's wheels."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import Shell, install

MOST_SECONDS = 600
ORDERS = ["id,customer,amount,placed_at", *(f"{n},c{n % 7},{n}.5,2026-11-{n % 28 + 1:02} 10:00:00" for n in range(200))]
WITH_COUNTRY = {
    "type": "record",
    "name": "orders",
    "fields": [
        {"name": "id", "type": ["null", "long"], "default": None},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "placed_at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "country", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = install(tmp_path, extras="all")
    try:
        yield made
    finally:
        made("lakefeed", "local", "down", "--erase")
        print("\n".join(made.said))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_commands_of_the_first_hour_work(shell: Shell) -> None:
    began, keyed = time.monotonic(), ("--key", "customer")

    def produce(file: str, *options: str, encode: str = "confluent-avro") -> None:
        shell("lakefeed", "topics", "produce", "orders", "--file", file, "--encode", encode, *options)

    shell("lakefeed", "local", "doctor")
    first = shell("lakefeed", "quickstart")
    assert "payment_type" in first
    again = shell("lakefeed", "quickstart")
    assert "the table has all records already" in again

    # The user's CSV file becomes a topic, then a table, which the user queries.
    (shell.folder / "orders.csv").write_text("\n".join(ORDERS) + "\n")
    shell("lakefeed", "topics", "create", "orders", "--partitions", "3")
    produce("orders.csv", *keyed)
    shell("lakefeed", "init", "--topic", "orders", "--warehouse", "lake")
    shell("lakefeed", "check", "--connect")
    assert "200 rows" in shell("lakefeed", "run", "--once")
    query = (
        "import lakefeed; p = lakefeed.Pipeline.from_file('pipeline.yaml'); "
        "t = lakefeed.open_table('lake.landing.orders', connections=p.connections); "
        "print(t.scan().to_duckdb('t').sql('SELECT count(*) AS orders, sum(amount) AS amount FROM t'))"
    )
    assert "20000.0" in shell("python", "-c", query)

    # The user misspells an option.
    file = shell.folder / "pipeline.yaml"
    good = file.read_text()
    file.write_text(good.replace("max_records_per_batch:", "max_record_per_batch:"))
    wrong = shell("lakefeed", "run", "--once", status=2)
    assert "did you mean 'max_records_per_batch'" in wrong
    assert "pipeline.yaml:" in wrong
    file.write_text(good)

    # An undecodable record stops the feed; the error shows how to set it aside.
    (shell.folder / "poison.csv").write_text("value\nnot avro\n")
    produce("poison.csv", encode="string")
    stopped = shell("lakefeed", "run", "--once", status=2)
    assert "dead_letters" in stopped
    assert "offset" in stopped
    file.write_text(f"{good}\ndead_letters: {{table: lake.landing.orders_dead}}\n")
    shell("lakefeed", "run", "--once")
    letters = shell("lakefeed", "dead-letters", "list")
    assert "orders:" in letters
    assert "wrong magic byte" in letters
    good = file.read_text()

    # The user adds a field to the schema, and the table gets the column.
    (shell.folder / "order.avsc").write_text(json.dumps(WITH_COUNTRY))
    (shell.folder / "more.csv").write_text(
        "id,customer,amount,placed_at,country\n"
        + "".join(f"{n},c1,1.0,2026-11-25 10:00:00,FR\n" for n in range(500, 510))
    )
    produce("more.csv", *keyed, "--schema-file", "order.avsc")
    assert "10 rows" in shell("lakefeed", "run", "--once")
    assert "FR" in shell("python", "-c", query.replace("count(*) AS orders, sum(amount) AS amount", "max(country)"))

    # A run is killed.
    produce("orders.csv", *keyed)
    run = shell.start("lakefeed", "run", "--set", "source.kafka.max_records_per_batch=20", "--set", "trigger=1 second")
    assert run.stdout is not None
    seen = 0
    for line in run.stdout:
        seen += ": batch " in line
        if seen == 2:
            break
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    run.stdout.close()
    shell("lakefeed", "run", "--once")
    assert "410" in shell("python", "-c", query)
    assert "each record once" in shell("lakefeed", "verify", "--deep")

    # The user adds a transform: the plan shows the change, then the run makes it.
    file.write_text(good.replace("sink:\n", "transform: {sql: 'SELECT *, amount * 1.2 AS gross FROM orders'}\nsink:\n"))
    assert "ADD COLUMN" in shell("lakefeed", "plan").upper()
    produce("more.csv", "--schema-file", "order.avsc")
    assert "10 rows" in shell("lakefeed", "run", "--once")
    assert "1.2" in shell("python", "-c", query.replace("count(*) AS orders, sum(amount) AS amount", "max(gross)"))
    shell("lakefeed", "verify")

    assert "Quickstart" in shell("lakefeed", "docs", "quickstart")
    assert time.monotonic() - began < MOST_SECONDS
