"""Cases may have watermarks, joins with tables, and joins of topics."""

from pathlib import Path

from packages.testing.tests.cases import JSON, Run, messages


def test_a_watermark_closes_windows_and_drops_late_rows(run: Run) -> None:
    report = run(
        JSON
        + """
transform:
  watermark: {column: at, delay: 10 minutes}
  sql: SELECT window.start AS begins, zip, count(*) AS hits FROM hits GROUP BY window(at, '10 minutes'), zip
tests:
  cases:
    windows:
      records:
        - {value: {zip: a, at: "2026-01-01T00:01:00Z"}}
        - {value: {zip: a, at: "2026-01-01T00:02:00Z"}}
        - {value: {zip: b, at: "2026-01-01T00:02:00Z"}}
        - {value: {zip: a, at: "2026-01-01T00:31:00Z"}, batch: 2}
        - {value: {zip: a, at: "2026-01-01T00:32:00Z"}, batch: 3}
        - {value: {zip: a, at: "2026-01-01T00:02:00Z"}, batch: 4}
      rows:
        - {begins: 2026-01-01T00:00:00Z, zip: a, hits: 2}
        - {begins: 2026-01-01 00:00:00, zip: b, hits: 1}
    an open window has no row yet:
      records: [{value: {zip: a, at: "2026-01-01T00:01:00Z"}}]
      rows: []
"""
    )
    assert messages(report) == {"windows": [], "an open window has no row yet": []}


def test_the_steps_of_a_transform_join_tables_and_call_python(run: Run, tmp_path: Path) -> None:
    (tmp_path / "steps_of_case.py").write_text(
        "def shout(rows):\n    from pyspark.sql import functions as sf\n"
        "    return rows.withColumn('city', sf.upper('city'))\n",
        "utf-8",
    )
    report = run(
        JSON
        + """
transform:
  tables: {zips: {table: lake.web.zips}}
  steps:
    joined: {sql: 'SELECT h.zip, z.city FROM hits h LEFT JOIN zips z ON h.zip = z.zip'}
    loud: {python: "steps_of_case:shout"}
tests:
  tables:
    zips: {schema_ddl: "zip STRING, city STRING", rows: [{zip: "1", city: bern}]}
""",
        """
tables:
  zips: {schema_ddl: "zip STRING, city STRING", rows: [{zip: "1", city: bern}]}
cases:
  joined:
    records: [{value: {zip: "1"}}, {value: {zip: "2"}}]
    rows: [{zip: "1", city: BERN}, {zip: "2", city: null}]
""",
    )
    assert messages(report) == {"joined": []}


def test_a_join_of_two_topics_keeps_unmatched_rows_until_the_watermark(run: Run) -> None:
    report = run(
        """
name: bought
source: {kafka: {bootstrap_servers: localhost:9092, topics: [clicks, orders]}}
decode: {json: {schema_ddl: "id BIGINT, at TIMESTAMP, price BIGINT"}}
dead_letters: {table: lake.shop.bought_dead}
transform:
  streams:
    clicks: {topic: clicks, watermark: {column: at, delay: 10 minutes}}
    orders: {topic: orders, watermark: {column: at, delay: 10 minutes}}
  sql: >
    SELECT clicks.id, orders.price FROM clicks LEFT JOIN orders
    ON clicks.id = orders.id AND orders.at BETWEEN clicks.at AND clicks.at + INTERVAL 1 HOUR
sink: {iceberg: {table: lake.shop.bought}}
checkpoint: s3a://lake/checkpoints/bought
tests:
  cases:
    an order comes, one comes late and one never:
      records:
        - {topic: clicks, value: {id: 1, at: "2026-01-01T12:00:00Z"}}
        - {topic: clicks, value: {id: 2, at: "2026-01-01T12:01:00Z"}}
        - {topic: clicks, value: {id: 3, at: "2026-01-01T12:02:00Z"}}
        - {topic: orders, text: '{"id": '}
        - {topic: orders, value: {id: 1, at: "2026-01-01T12:30:00Z", price: 10}, batch: 2}
        - {topic: orders, value: {id: 2, at: "2026-01-01T13:10:00Z", price: 20}}
        - {topic: clicks, value: {id: 4, at: "2026-01-01T15:00:00Z"}, batch: 3}
        - {topic: orders, value: {id: 4, at: "2026-01-01T15:05:00Z", price: 40}}
      rows: [{id: 1, price: 10}, {id: 2, price: null}, {id: 3, price: null}, {id: 4, price: 40}]
      dead_letters: [{topic: orders, offset: 0}]
    a click that an order can still come for:
      records: [{topic: clicks, value: {id: 1, at: "2026-01-01T12:00:00Z"}}]
      rows: []
"""
    )
    assert messages(report) == {
        "an order comes, one comes late and one never": [],
        "a click that an order can still come for": [],
    }
