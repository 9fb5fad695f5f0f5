"""Cases may have keys, changed schemas, several topics, repeated records and Kinesis shards."""

import pytest

from lakefeed.errors import ConfigError
from packages.testing.tests.cases import AVRO, JSON, Run, messages


@pytest.mark.quick
def test_a_record_becomes_a_row_or_a_dead_letter_or_is_skipped(run: Run) -> None:
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


def test_the_setting_on_change_decides_how_records_of_a_later_schema_land(run: Run) -> None:
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


def test_upserts_keep_one_row_per_key_and_tombstones_delete_rows(run: Run) -> None:
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


def test_keys_are_decoded_with_their_own_schema(run: Run) -> None:
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


def test_each_topic_has_its_own_table_and_rules(run: Run) -> None:
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


def test_records_that_the_kafka_sink_has_sent_twice_are_skipped(run: Run) -> None:
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


def test_records_of_kinesis_have_shards_and_sequence_numbers(run: Run) -> None:
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


def test_a_pipeline_that_reads_files_is_refused(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"cases are records of topics or streams, and the pipeline reads files"):
        run(
            """
name: hits
source: {files: {path: "s3a://lake/in", format: json, schema_ddl: "zip STRING"}}
sink: {iceberg: {table: lake.web.hits}}
checkpoint: s3a://lake/checkpoints/hits
tests: {cases: {one: {records: [{value: {zip: a}}], rows: []}}}
"""
        )
