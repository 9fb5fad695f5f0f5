"""Cases of pipelines through the feed's own code, without brokers, registry and store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lakefeed.cases.load import load_cases
from lakefeed.cases.run import TestReport, run_files
from lakefeed.errors import ConfigError
from lakefeed.testing import LandRecords, TestRegistry, TestTopic, run_cases
from tests.support.blocks import ROOT, blocks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLES = Path(__file__).parents[2] / "examples"
Run = Callable[..., TestReport]

AVRO = """
name: trips
source: {kafka: {bootstrap_servers: "${KAFKA_BOOTSTRAP_SERVERS}", topics: [trips]}}
decode:
  avro: {registry: "${SCHEMA_REGISTRY_URL}"}
  metadata: [offset, key]
  on_null: skip
expect:
  fare: {rule: fare >= 0, on_violation: dead_letter}
  zone: {rule: zone <> 'X', on_violation: drop}
dead_letters: {table: lake.nyc.trips_dead}
transform: {sql: "SELECT *, fare * 2 AS twice FROM trips"}
sink: {iceberg: {table: lake.nyc.trips, partition_by: [zone]}}
checkpoint: s3a://lake/checkpoints/trips
tests:
  schemas:
    1: {schema: {type: record, name: Trip, fields: [{name: zone, type: string}, {name: fare, type: double}]}}
    2:
      schema:
        type: record
        name: Trip
        fields:
          - {name: zone, type: string}
          - {name: fare, type: double}
          - {name: tip, type: ["null", double], default: null}
    9: {subject: other-value, schema: {type: record, name: Other, fields: [{name: x, type: string}]}}
  cases:
"""
JSON = """
name: hits
source: {kafka: {bootstrap_servers: localhost:9092, topics: [hits]}}
decode: {json: {schema_ddl: "zip STRING, at TIMESTAMP"}}
sink: {iceberg: {table: lake.web.hits}}
checkpoint: s3a://lake/checkpoints/hits
"""

PROTOBUF = """
name: trips
source: {kafka: {bootstrap_servers: "${KAFKA_BOOTSTRAP_SERVERS}", topics: [trips]}}
decode:
  protobuf: {registry: "${SCHEMA_REGISTRY_URL}", message: nyc.Trip}
  metadata: [offset]
  on_null: skip
dead_letters: {table: lake.nyc.trips_dead}
sink: {iceberg: {table: lake.nyc.trips}}
checkpoint: s3a://lake/checkpoints/trips
tests:
  schemas:
    1:
      schema: |
        syntax = "proto3";
        package nyc;
        message Stop { string name = 1; bool is_paid = 2; }
        message Trip { string zone = 1; int64 meters = 2; repeated double fares = 3; Stop last = 4; }
    2:
      schema: |
        syntax = "proto3";
        package nyc;
        message Stop { string name = 1; bool is_paid = 2; }
        message Trip { string zone = 1; int64 meters = 2; repeated double fares = 3; Stop last = 4; double tip = 5; }
  cases:
"""
JSON_SCHEMA = """
name: users
source: {kafka: {bootstrap_servers: "${KAFKA_BOOTSTRAP_SERVERS}", topics: [users]}}
decode: {json_schema: {registry: "${SCHEMA_REGISTRY_URL}"}}
dead_letters: {table: lake.shop.users_dead}
sink: {iceberg: {table: lake.shop.users}}
checkpoint: s3a://lake/checkpoints/users
tests:
  schemas:
    1:
      schema:
        type: object
        properties:
          id: {type: integer}
          born: {type: string, format: date}
          tags: {type: array, items: {type: string}}
        required: [id]
    2:
      schema:
        type: object
        properties: {id: {type: integer}, born: {type: string, format: date}, mail: {type: string}}
        required: [id]
  cases:
"""
CSV = """
name: readings
source: {kafka: {bootstrap_servers: localhost:9092, topics: [readings]}}
decode:
  csv: {schema_ddl: "sensor STRING, at TIMESTAMP, celsius DOUBLE", delimiter: ";", null_value: "-"}
  key: {csv: {schema_ddl: "site STRING, floor INT"}}
  metadata: [key]
dead_letters: {table: lake.iot.readings_dead}
sink: {iceberg: {table: lake.iot.readings}}
checkpoint: s3a://lake/checkpoints/readings
tests:
  cases:
"""


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Run the cases of a pipeline file, and of further files of cases, in the session of all tests."""

    def run(text: str, *cases: str, names: tuple[str, ...] = ()) -> TestReport:
        file = tmp_path / "pipeline.yaml"
        file.write_text(text, "utf-8")
        paths = [tmp_path / f"cases-{number}.yaml" for number in range(len(cases))]
        for path, content in zip(paths, cases, strict=True):
            path.write_text(content, "utf-8")
        return run_files(file, load_cases(file, paths, environment={}), names=names)

    return run


def messages(report: TestReport) -> dict[str, list[str]]:
    """What differs, by case."""
    return {result.case: [each.what for each in result.differences] for result in report.results}


@pytest.mark.quick
def test_records_become_rows_dead_letters_and_skipped_ones_as_in_the_feed(run: Run) -> None:
    report = run(
        AVRO
        + """
    all that a record can become:
      records:
        - {value: {zone: A, fare: 1.5}, key: k1}
        - {hex: "00 00 00 00 01 ff ff"}
        - {value: {x: hello}, schema_id: 9}
        - {hex: "00 00 00 00 63 02"}
        - {value: {zone: A, fare: -1}}
        - {value: null}
        - {value: {zone: X, fare: 1}}
        - {value: {zone: B, fare: 2, tip: 0.5}, schema_id: 2}
      rows:
        - {zone: B, fare: 2, twice: 4, tip: 0.5, kafka_key: null, kafka_offset: 7}
        - {zone: A, fare: 1.5, twice: 3, tip: null, kafka_key: k1, kafka_offset: 0}
      columns: exact
      dead_letters:
        - {offset: 1}
        - {offset: 2, reason: "the record is a Other"}
        - {offset: 3, reason: schema id 99}
        - {offset: 4, reason: "expectation fare: fare >= 0"}
      skipped: 2
    what differs:
      records: [{value: {zone: A, fare: 1}}, {value: {zone: B, fare: 1}}]
      rows: [{zone: A, fare: 2}, {zone: C, none: 2}, {zone: B}]
      dead_letters: [{reason: x}]
"""
    )
    assert messages(report) == {
        "all that a record can become": [],
        "what differs": [
            "row 1: fare is 1.0, expected 2",
            'row 2 is missing: {"zone": "C", "none": 2}',
            'dead letter 1 is missing: {"reason": "x"}',
        ],
    }
    assert [result.has_passed for result in report.results] == [True, False]
    assert [note.partition(":")[0] for note in report.results[0].outcome.notes] == ["schema id 9", "schema id 2"]


def test_the_schema_that_comes_later_changes_what_the_file_says_it_changes(run: Run) -> None:
    case = """
    a new field:
      records:
        - {value: {zone: A, fare: 1}, schema_id: 1}
        - {value: {zone: B, fare: 1, tip: 1}, schema_id: 2, batch: 2}
"""
    stops = run(
        AVRO.replace("dead_letters:", "schema: {on_change: fail}\ndead_letters:")
        + f"{case}      error: the schema changed with schema id 2\n      rows: [{{zone: A}}]"
    )
    assert messages(stops) == {"a new field": []}
    left_out = run(
        AVRO.replace("dead_letters:", "schema: {on_change: ignore}\ndead_letters:")
        + f"{case}      columns: exact\n      rows:\n"
        "        - {zone: A, fare: 1, twice: 2, kafka_offset: 0, kafka_key: null}\n"
        "        - {zone: B, fare: 1, twice: 2, kafka_offset: 1, kafka_key: null}\n"
    )
    assert messages(left_out) == {"a new field": []}
    continues = run(AVRO + f"{case}      error: the schema changed\n      rows: [{{zone: A, tip: null}}]")
    assert messages(continues)["a new field"][0] == "the feed does not stop, expected the error: the schema changed"
    assert messages(continues)["a new field"][1].startswith('unexpected row: {"zone": "B", "fare": 1.0, ')


def test_a_watermark_closes_windows_and_leaves_late_rows_out(run: Run) -> None:
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


def test_changes_of_a_key_leave_one_row_and_tombstones_delete_it(run: Run) -> None:
    report = run(
        """
name: people
source: {kafka: {bootstrap_servers: localhost:9092, topics: [people]}}
decode:
  json: {schema_ddl: "id BIGINT, name STRING"}
  key: {json: {schema_ddl: "id BIGINT"}}
sink: {jdbc: {url: "jdbc:postgresql://db/x", user: u, password: "${PASSWORD}", table: people, mode: upsert, keys: [id]}}
checkpoint: s3a://lake/checkpoints/people
tests:
  cases:
    changes:
      records:
        - {key: {id: 1}, value: {id: 1, name: a}}
        - {key: {id: 2}, value: {id: 2, name: b}}
        - {key: {id: 1}, value: {id: 1, name: c}, batch: 2}
        - {key: {id: 2}, value: null}
      rows: [{id: 1, name: c}]
"""
    )
    assert messages(report) == {"changes": []}


def test_keys_are_decoded_with_a_schema_of_their_own(run: Run) -> None:
    report = run(
        AVRO.replace("  metadata:", "  key: {avro: {registry: http://localhost:8081}}\n  metadata:").replace(
            "  schemas:",
            "  schemas:\n    4: {subject: trips-key, schema: {type: record, name: Key, fields: "
            "[{name: id, type: long}]}}",
        )
        + """
    keys:
      records:
        - {value: {zone: A, fare: 1}, key: {id: 7}}
        - {value: {zone: B, fare: 1}, key_hex: "00 01"}
      rows: [{zone: A, kafka_key: {id: 7}}]
      dead_letters: [{offset: 1, reason: key}]
"""
    )
    assert messages(report) == {"keys": []}


def test_each_topic_goes_to_its_own_table_with_its_own_rules(run: Run) -> None:
    report = run(
        """
name: shop
source: {kafka: {bootstrap_servers: localhost:9092, topics: [orders, users]}}
decode: {json: {schema_ddl: "id BIGINT"}}
dead_letters: {table: lake.shop.dead}
sink: {iceberg: {table: "lake.shop.{topic}"}}
tables:
  topics:
    users: {decode: {json: {schema_ddl: "name STRING"}}, expect: {named: {rule: name <> '', on_violation: dead_letter}}}
tests:
  cases:
    both:
      records:
        - {topic: orders, value: {id: 1}}
        - {topic: users, value: {name: a}}
        - {topic: users, value: {name: ""}}
      columns: exact
      rows: [{name: a}, {id: 1}]
      dead_letters: [{topic: users, offset: 1, reason: named}]
"""
    )
    assert messages(report) == {"both": []}


def test_copies_of_the_kafka_sink_are_skipped(run: Run) -> None:
    of_row = "headers: {lakefeed.batch: q/0, lakefeed.source: t/0/0, lakefeed.row: '0'}"
    report = run(
        JSON.replace("topics: [hits]", "topics: [hits], deduplicate: true")
        + f"""
tests:
  cases:
    copies:
      records:
        - {{value: {{zip: a}}, {of_row}}}
        - {{value: {{zip: a}}, {of_row}}}
        - {{value: {{zip: a}}}}
      rows: [{{zip: a}}, {{zip: a}}]
      skipped: 1
"""
    )
    assert messages(report) == {"copies": []}


def test_steps_join_the_rows_that_the_tests_have_and_call_python(run: Run, tmp_path: Path) -> None:
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


def test_streams_of_two_topics_are_joined_and_a_row_without_a_match_waits_for_the_watermark(run: Run) -> None:
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


def test_records_of_kinesis_are_in_shards_and_have_sequence_numbers(run: Run) -> None:
    report = run(
        """
name: hits
source: {kinesis: {stream: web-hits}}
decode:
  json: {schema_ddl: "zip STRING"}
  metadata: [topic, partition, offset, key, sequence_number]
dead_letters: {table: lake.web.hits_dead}
sink: {iceberg: {table: lake.web.hits}}
checkpoint: s3a://lake/checkpoints/hits
tests:
  cases:
    two shards:
      records:
        - {key: visitor-7, value: {zip: "94105"}}
        - {key: visitor-8, value: {zip: "10001"}, partition: 1}
        - {text: '{"zip": '}
        - {value: {zip: "60601"}, batch: 2}
      columns: exact
      rows:
        - {zip: "94105", kafka_topic: web-hits, kafka_partition: 0, kafka_offset: 0, kafka_key: visitor-7,
           kafka_sequence_number: "0"}
        - {zip: "10001", kafka_topic: web-hits, kafka_partition: 1, kafka_offset: 0, kafka_key: visitor-8,
           kafka_sequence_number: "0"}
        - {zip: "60601", kafka_topic: web-hits, kafka_partition: 0, kafka_offset: 2, kafka_key: null,
           kafka_sequence_number: "2"}
      dead_letters: [{partition: 0, offset: 1}]
"""
    )
    assert messages(report) == {"two shards": []}


def test_a_source_of_rows_is_refused_with_the_sources_that_cases_are_for(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"cases are records of Kafka or Kinesis, and the pipeline reads files"):
        run(
            """
name: hits
source: {files: {path: "s3a://lake/in", format: json, schema_ddl: "zip STRING"}}
sink: {iceberg: {table: lake.web.hits}}
checkpoint: s3a://lake/checkpoints/hits
tests: {cases: {one: {records: [{value: {zip: a}}], rows: []}}}
"""
        )


def test_protobuf_messages_are_encoded_with_the_schema_that_a_record_names(run: Run) -> None:
    report = run(
        PROTOBUF
        + """
    messages:
      records:
        - {value: {zone: A, meters: 9007199254740993, fares: [1.5, 2], last: {name: x, is_paid: true}}}
        - {value: {zone: B}}
        - {value: {zone: C, tip: 0.5}, schema_id: 2}
        - {value: null}
        - {hex: "00 00 00 00 01 02 02 0a 05 41"}
        - {hex: "00 00 00 00 07 00"}
        - {text: "zone=A"}
      columns: exact
      rows:
        - zone: A
          meters: 9007199254740993
          fares: [1.5, 2.0]
          last: {name: x, is_paid: true}
          tip: 0
          kafka_offset: 0
        - {zone: B, meters: 0, fares: [], last: null, tip: 0, kafka_offset: 1}
        - {zone: C, meters: 0, fares: [], last: null, tip: 0.5, kafka_offset: 2}
      skipped: 1
      dead_letters:
        - {offset: 4, reason: zone}
        - {offset: 5, reason: schema id 7}
        - {offset: 6, reason: magic byte}
    what differs:
      records: [{value: {zone: A, last: {name: x}}}]
      rows: [{zone: A, last: {name: y, is_paid: false}}]
"""
    )
    assert messages(report) == {
        "messages": [],
        "what differs": ['row 1: last is {"name": "x", "is_paid": false}, expected {"name": "y", "is_paid": false}'],
    }


def test_protobuf_messages_without_a_header_are_encoded_with_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "trip.proto").write_text(
        'syntax = "proto3";\nmessage Stop { string name = 1; }\n'
        "message Trip { string zone = 1; map<string, int32> n = 2; }\n"
    )
    pipeline = PROTOBUF.partition("tests:")[0].replace(
        'registry: "${SCHEMA_REGISTRY_URL}", message: nyc.Trip', "schema_file: trip.proto, message: Trip"
    )
    cases = """tests:
  cases:
    messages:
      records:
        - {value: {zone: A, n: {x: 1, y: 2}}}
        - {hex: "0a 01 42"}
        - {hex: "0a 05 42"}
      rows: [{zone: A, n: {x: 1, y: 2}}, {zone: B, n: {}}]
      dead_letters: [{offset: 2, reason: zone}]
"""
    assert messages(run(pipeline + cases)) == {"messages": []}
    with pytest.raises(ConfigError, match="the schema has no field zones"):
        run(pipeline + cases.replace("value: {zone:", "value: {zones:"))


def test_values_of_a_json_schema_have_the_header_of_the_schema_that_a_record_names(run: Run) -> None:
    report = run(
        JSON_SCHEMA
        + """
    values:
      records:
        - {value: {id: 1, born: 2000-02-29, tags: [a, b]}}
        - {value: {id: 2, mail: a@b.c}, schema_id: 2}
        - {value: {id: x}}
        - {value: {born: 2000-02-29}}
        - {text: '{"id": 1}'}
        - {hex: "00 00 00 00 63 7b 7d"}
      columns: exact
      rows:
        - {id: 1, born: 2000-02-29, tags: [a, b], mail: null}
        - {id: 2, born: null, tags: null, mail: a@b.c}
      dead_letters:
        - {offset: 2, reason: id}
        - {offset: 3, reason: id}
        - {offset: 4, reason: magic byte}
        - {offset: 5, reason: schema id 99}
    the newest schema is named:
      latest: 2
      records: [{value: {id: 1, mail: m}}, {value: {id: 2, tags: [t]}, schema_id: 1, batch: 2}]
      rows: [{id: 1, mail: m, tags: null}, {id: 2, mail: null, tags: [t]}]
"""
    )
    assert messages(report) == {"values": [], "the newest schema is named": []}


def test_fields_that_a_case_leaves_out_have_the_schemas_defaults_and_null_stays_null(run: Run, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(
        """{"type": "record", "name": "Order", "fields": [
            {"name": "id", "type": "long"},
            {"name": "state", "type": "string", "default": "new"},
            {"name": "note", "type": ["null", "string"], "default": null},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
             "default": "\\u0001\\u0000"},
            {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": "string"}, {"name": "count", "type": "int", "default": 1}]}}, "default": []}
        ]}"""
    )
    pipeline = JSON.replace('json: {schema_ddl: "zip STRING, at TIMESTAMP"}', "avro: {schema_file: order.avsc}")
    case = """
tests:
  cases:
    defaults:
      records: [{value: {id: 1}}, {value: {id: 2, lines: [{sku: a}, {sku: b, count: 2}]}}]
      rows:
        - {id: 1, state: new, note: null, price: 2.56, lines: []}
        - {id: 2, state: new, note: null, price: 2.56, lines: [{sku: a, count: 1}, {sku: b, count: 2}]}
"""
    assert messages(run(pipeline + case)) == {"defaults": []}
    for value, field in (("state: null, id: 1", "state"), ("state: new", "id")):
        with pytest.raises(ConfigError, match=f"no value for the field '{field}'"):
            run(pipeline + case.replace("{value: {id: 1}}", f"{{value: {{{value}}}}}"))


def test_lines_of_csv_are_given_as_text(run: Run) -> None:
    report = run(
        CSV
        + '''
    lines:
      records:
        - {text: "a;2026-01-02T03:04:05Z;21.5", key: "Bern,3"}
        - {text: '"b;""c""";-;-'}
        - {text: "a;2026-01-02T03:04:05Z;warm"}
        - {text: "a;2026-01-02T03:04:05Z"}
        - {hex: "ff 3b 2d 3b 2d"}
        - {value: "d;-;1", batch: 2}
        - {text: "e;-;1", key: "Bern,third"}
      columns: exact
      rows:
        - {sensor: a, at: 2026-01-02T03:04:05Z, celsius: 21.5, kafka_key: {site: Bern, floor: 3}}
        - {sensor: 'b;"c"', at: null, celsius: null, kafka_key: null}
        - {sensor: d, at: null, celsius: 1, kafka_key: null}
      dead_letters:
        - {offset: 2, reason: celsius}
        - {offset: 3, reason: "2"}
        - {offset: 4, reason: UTF-8}
        - {offset: 6, reason: floor}
    what differs:
      records: [{text: "a;-;1"}]
      rows: [{sensor: a, celsius: 1.5}]
'''
    )
    assert messages(report) == {"lines": [], "what differs": ["row 1: celsius is 1.0, expected 1.5"]}


def test_a_value_of_csv_that_is_no_text_is_a_mistake_in_the_case(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        run(CSV + "    fields:\n      records:\n        - {value: {sensor: a}}\n")
    assert str(found.value).splitlines() == [
        "a value that is decoded as csv is given as text",
        f"  where: {tmp_path}/pipeline.yaml:15",
        "  next:  text: '…', or hex: '…'",
    ]


def test_a_value_that_does_not_fit_its_schema_is_named_by_file_and_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        run(
            AVRO + "    wrong:\n      records:\n        - {value: {zone: A, fare: 1}}\n"
            "        - {value: {zone: A, fair: 1}}\n"
        )
    assert str(found.value).splitlines()[:2] == [
        "the value cannot be encoded: the schema has no field fair",
        f"  where: {tmp_path}/pipeline.yaml:31",
    ]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("zone: 5, fare: 1", "zone is 5, and the schema has string there"),
        ("zone: no, fare: 1", "zone is false, and the schema has string there"),
        ('zone: A, fare: "1.5"', 'fare is "1.5", and the schema has double there'),
        ("zone: A, fare: 1, legs: [{count: 3000000000}]", "legs[0].count is 3000000000, and the schema has int there"),
        (
            "zone: A, fare: 1, kind: BUS",
            "a row has a value for the field 'kind' that its type in the schema does not have",
        ),
    ],
)
def test_the_field_of_another_type_is_named(run: Run, value: str, what: str) -> None:
    schema = """
        type: record
        name: Trip
        fields:
          - {name: zone, type: string}
          - {name: fare, type: [null, double]}
          - name: legs
            type: [null, {type: array, items: {type: record, name: Leg, fields: [{name: count, type: int}]}}]
            default: null
          - {name: kind, type: {type: enum, name: Kind, symbols: [TAXI, VAN]}, default: TAXI}
"""
    head, _, _ = AVRO.partition("tests:")
    cases = f"  cases:\n    wrong:\n      records: [{{value: {{{value}}}}}]\n"
    with pytest.raises(ConfigError) as found:
        run(f"{head}tests:\n  schemas:\n    1:\n      schema:{schema}{cases}")
    assert str(found.value).splitlines()[0] == f"the value cannot be encoded: {what}"


def test_a_null_without_quotes_is_avros_type(run: Run) -> None:
    schema = "{type: record, name: Trip, fields: [{name: zone, type: string}, {name: fare, type: [null, double]}]}"
    head, _, _ = AVRO.partition("tests:")
    cases = "  cases:\n    none:\n      records: [{value: {zone: A, fare: 1}}]\n      rows: [{fare: 1, zone: A}]\n"
    report = run(f"{head}tests:\n  schemas: {{1: {{schema: {schema}}}}}\n{cases}")
    assert messages(report) == {"none": []}


def test_the_examples_own_cases_pass(spark: SparkSession) -> None:
    report = run_cases(EXAMPLES / "isp_hits" / "by_zip_and_day.yaml")
    assert messages(report) == {
        "a hit is of the day that it has in UTC": [],
        "a time that is none stops the feed": [],
    }


def test_the_fixtures_land_records_with_a_pipeline_file(
    spark: SparkSession,
    tmp_path: Path,
    lakefeed_topic: Callable[[str], TestTopic],
    lakefeed_registry: TestRegistry,
    lakefeed_table: LandRecords,
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(AVRO.partition("tests:")[0], "utf-8")
    fields = [{"name": "zone", "type": "string"}, {"name": "fare", "type": "double"}]
    schema_id = lakefeed_registry.register({"type": "record", "name": "Trip", "fields": fields})
    trips = lakefeed_topic("trips")
    trips.send({"zone": "A", "fare": 1.5}, key="k", schema_id=schema_id)
    trips.send({"zone": "A", "fare": -1})
    trips.send(None)
    trips.send(hex="ff")
    landed = lakefeed_table(file, trips)
    assert landed.rows == [{"zone": "A", "fare": 1.5, "kafka_offset": 0, "kafka_key": "k", "twice": 3.0}]
    assert [letter.offset for letter in landed.dead_letters] == [1, 3]
    assert (landed.skipped, landed.error) == (1, None)


def test_the_test_that_the_page_shows_passes(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lakefeed_topic: Callable[[str], TestTopic],
    lakefeed_registry: TestRegistry,
    lakefeed_table: LandRecords,
) -> None:
    """Of docs/test-a-pipeline.md, with the pipeline file that stands on its top."""
    blocks = blocks_of(ROOT / "docs" / "test-a-pipeline.md")
    names: dict[str, Any] = {}
    for block in blocks:
        if block.test is not None:
            exec(compile(block.text, str(block), "exec"), names)
    assert names["pytest_plugins"] == ["lakefeed.testing"]
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(next(block.text for block in blocks if block.language == "yaml"))
    names["test_a_negative_fare_is_a_dead_letter"](lakefeed_topic, lakefeed_registry, lakefeed_table)


def test_the_cases_that_the_page_shows_pass(run: Run) -> None:
    """Of docs/test-a-pipeline.md; a fragment is completed with the file that stands on its top."""
    shown = [
        yaml.safe_load(block.text)
        for block in blocks_of(ROOT / "docs" / "test-a-pipeline.md")
        if block.language == "yaml"
    ]
    whole = {key: shown[0][key] for key in ("name", "source", "sink", "checkpoint")}
    passed: list[str] = []
    for fragment in shown:
        report = run(yaml.safe_dump({**whole, **fragment}))
        assert messages(report) == {case: [] for case in fragment["tests"]["cases"]}
        passed.extend(messages(report))
    assert len(passed) == 4
