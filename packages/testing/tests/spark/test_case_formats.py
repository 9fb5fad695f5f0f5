"""Cases in every format, and values that do not fit their schema."""

from pathlib import Path

import pytest

from lakefeed.errors import ConfigError
from packages.testing.tests.cases import AVRO, JSON, Run, messages

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
    3:
      schema: {type: object, properties: {id: {type: number}, born: {type: string, format: date}}}
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


def test_protobuf_messages_are_encoded_with_the_schema_of_the_record(run: Run) -> None:
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


def test_protobuf_messages_without_a_header_are_encoded_with_the_schema_file(run: Run, tmp_path: Path) -> None:
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


def test_the_hint_for_an_unknown_field_names_decode_protobuf_message(run: Run) -> None:
    pipeline = PROTOBUF.replace(", message: nyc.Trip", "")
    with pytest.raises(ConfigError, match=r"the schema has name, is_paid; .* decode.protobuf.message names another"):
        run(pipeline + "    wrong:\n      records:\n        - {value: {zone: A}}\n")


def test_json_schema_values_have_a_header_with_the_schema_id_of_the_record(run: Run) -> None:
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


def test_missing_fields_get_the_schemas_defaults(run: Run, tmp_path: Path) -> None:
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


def test_csv_values_are_lines_of_text(run: Run) -> None:
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


def test_a_csv_value_that_is_not_text_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        run(CSV + "    fields:\n      records:\n        - {value: {sensor: a}}\n")
    assert str(found.value).splitlines() == [
        "a value of the format csv must be text",
        f"  where: {tmp_path}/pipeline.yaml:15",
        "  next:  write text: '…', or hex: '…'",
    ]


def test_the_error_for_a_value_that_does_not_fit_has_file_and_line(run: Run, tmp_path: Path) -> None:
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
        ("zone: A, fare: 1, tip: 1.255", "tip is 1.255, and the schema has decimal(4,2) there"),
        ('zone: A, fare: 1, tip: "100"', 'tip is "100", and the schema has decimal(4,2) there'),
        ("zone: A, fare: 1, way: 1.0e+39", "way is 1e+39, and the schema has float there"),
        (
            "zone: A, fare: 1, kind: BUS",
            "a row has a value for the field 'kind' that does not fit the field's type in the schema",
        ),
    ],
)
def test_the_error_for_a_value_that_does_not_fit_names_the_field(run: Run, value: str, what: str) -> None:
    schema = """
        type: record
        name: Trip
        fields:
          - {name: zone, type: string}
          - {name: fare, type: [null, double]}
          - name: legs
            type: [null, {type: array, items: {type: record, name: Leg, fields: [{name: count, type: int}]}}]
            default: null
          - {name: tip, type: [null, {type: bytes, logicalType: decimal, precision: 4, scale: 2}], default: null}
          - {name: way, type: [null, float], default: null}
          - {name: kind, type: {type: enum, name: Kind, symbols: [TAXI, VAN]}, default: TAXI}
"""
    head, _, _ = AVRO.partition("tests:")
    cases = f"  cases:\n    wrong:\n      records: [{{value: {{{value}}}}}]\n"
    with pytest.raises(ConfigError) as found:
        run(f"{head}tests:\n  schemas:\n    1:\n      schema:{schema}{cases}")
    assert str(found.value).splitlines()[0] == f"the value cannot be encoded: {what}"


def test_null_without_quotes_is_read_as_the_avro_type_null(run: Run) -> None:
    schema = "{type: record, name: Trip, fields: [{name: zone, type: string}, {name: fare, type: [null, double]}]}"
    head, _, _ = AVRO.partition("tests:")
    cases = "  cases:\n    none:\n      records: [{value: {zone: A, fare: 1}}]\n      rows: [{fare: 1, zone: A}]\n"
    report = run(f"{head}tests:\n  schemas: {{1: {{schema: {schema}}}}}\n{cases}")
    assert messages(report) == {"none": []}


MAPS = """
name: trips
source: {kafka: {bootstrap_servers: "${KAFKA_BOOTSTRAP_SERVERS}", topics: [trips]}}
decode: {protobuf: {registry: "${SCHEMA_REGISTRY_URL}"}}
sink: {iceberg: {table: lake.nyc.trips}}
checkpoint: s3a://lake/checkpoints/trips
tests:
  schemas:
    1: {schema: 'syntax = "proto3"; message Trip { map<int32, string> stops = 1; map<bool, string> paid = 2; }'}
  cases:
"""


def test_keys_of_maps_must_fit_the_type_in_the_schema(run: Run) -> None:
    report = run(
        MAPS
        + """
    keys:
      records: [{value: {stops: {1: A, -2: B}, paid: {true: a, false: b}}}]
      rows: [{stops: {"1": A, "-2": B}, paid: {"true": a, "false": b}}]
"""
    )
    assert messages(report) == {"keys": []}
    for field, key in ("stops", "abc"), ("stops", "99999999999"), ("paid", "maybe"):
        with pytest.raises(ConfigError, match=f"the field '{field}' that does not fit the field's type in the schema"):
            run(f"{MAPS}    wrong: {{records: [{{value: {{{field}: {{{key}: A}}}}}}], rows: []}}\n")


def test_records_of_an_incompatible_schema_are_dead_letters(run: Run) -> None:
    report = run(
        JSON_SCHEMA
        + """
    a number for an integer:
      records:
        - {value: {id: 1}}
        - {value: {id: 2}, schema_id: 3, batch: 2}
        - {value: {id: 2.5}, schema_id: 3}
        - {value: {born: "2026-01-01"}, schema_id: 3}
      rows: [{id: 1}]
      dead_letters:
        - {offset: 1, reason: "schema id 3: id is long in the reader's schema and double in the writer's"}
        - {offset: 2, reason: "schema id 3: id is long in the reader's schema and double in the writer's"}
        - {offset: 3, reason: "schema id 3: id is long in the reader's schema and double in the writer's"}
"""
    )
    assert messages(report) == {"a number for an integer": []}
