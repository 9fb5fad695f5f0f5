"""Compare lakefeed's parsing of .proto text with protoc's descriptors."""

import re
from pathlib import Path
from typing import Any

import google
import grpc_tools
import pytest
from grpc_tools import protoc
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tests.support.protos import HERE

ODD = {
    "legacy.proto": r"""syntax = "proto2"; // a comment
package x.legacy; /* one
of two lines */
import "google/protobuf/descriptor.proto";
option java_package = "a" "b";
extend google.protobuf.FieldOptions { optional string note = 50001; }
message A {
  required int32 id = 1;
  optional string s = 2 [default = "x\"];}", (note) = "a, b]"];
  repeated group Item = 3 { optional int32 q = 1; }
  extensions 100 to 199, 300 to max;
  reserved 5, 7 to 9;
  reserved "foo";
  optional B.C bc = 10;
  oneof k { int64 a = 11; group G = 12 { optional bool z = 1; } string optional = 13; }
  extend A { optional A more = 100; }
  map<int32, B> by_zone_id = 20;
  optional float f = 21 [default = -1e-5];
  optional .x.legacy.B message = 22;
  optional bytes package = 0x17;
}
message B {
  message C {
    optional E e = 1 [default = TWO];
    enum E { option allow_alias = true; ONE = 1; UNO = 1; TWO = -2; reserved 9; }
  } ;
}
service S { rpc Do(A) returns (stream B); }
""",
    "edition.proto": """edition = "2023";
package ed;
message Before { int32 a = 1; Before b = 2; }
option features.field_presence = IMPLICIT;
option features.message_encoding = DELIMITED;
message M {
  int32 a = 1;
  int32 b = 2 [features.field_presence = EXPLICIT];
  int32 c = 3 [features.field_presence = LEGACY_REQUIRED];
  M d = 4;
  M e = 5 [features.message_encoding = LENGTH_PREFIXED, deprecated = true];
  map<string, int32> m = 6;
  oneof o { string x = 7; M y = 8; }
  repeated int32 r = 9 [features = { repeated_field_encoding: EXPANDED }];
}
""",
}


def test_every_proto_file_is_parsed_as_protoc_parses_it(spark: SparkSession, tmp_path: Path) -> None:
    roots = [tmp_path, HERE, Path(next(iter(google.__path__))).parent, Path(grpc_tools.__file__).parent / "_proto"]
    for name, text in ODD.items():
        (tmp_path / name).write_text(text)
    known = [path.relative_to(root) for root in roots[2:] for path in (root / "google").rglob("*.proto")]
    names = sorted({*ODD, "rich.proto", "money.proto", *map(str, known)})
    out = tmp_path / "set.bin"
    paths = [f"-I{root}" for root in roots]
    assert protoc.main(["protoc", *paths, "--include_imports", f"--descriptor_set_out={out}", *names]) == 0

    gateway: Any = spark._jvm
    package = gateway.io.lakefeed.protobuf
    compiled = package.ProtoDescriptor.files(out.read_bytes())
    parsed = gateway.java.util.HashMap()
    for name in names:
        text = next(root / name for root in roots if (root / name).is_file()).read_text()
        parsed.put(name, package.ProtoParser.parse(text))
    assert len(names) > 70
    for name in names:
        own = package.ProtoTypes.of(parsed.get(name), parsed.values()).toString()
        assert own == package.ProtoTypes.of(compiled.get(name), compiled.values()).toString(), name


def test_invalid_file_is_an_error_with_its_line(spark: SparkSession, subtests: pytest.Subtests) -> None:
    gateway: Any = spark._jvm
    wrong = {
        "message A {\n required int32 a 1; }": "line 2: expected '=', found '1'",
        "message A {\n required int32 a = x; }": "line 2: expected a number, found 'x'",
        "message A {": "line 1: expected optional, required or repeated, found the end",
        'import "a': "line 1: text in quotes does not end",
        "nonsense": "line 1: expected message, enum, extend or service, found 'nonsense'",
        "message A { option x = { ": "line 1: expected '}', found the end",
        "message A {" * 200: "line 1: more than 100 messages inside each other: define some outside",
    }
    for text, why in wrong.items():
        with subtests.test(text[:30]), pytest.raises(IllegalArgumentException, match=re.escape(why)):
            gateway.io.lakefeed.protobuf.ProtoParser.parse(text)
