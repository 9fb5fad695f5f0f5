"""lakefeed's parser accepts and refuses the same `.proto` texts as protoc, and reads the same from them."""

import os
import random
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google
import grpc_tools
import pytest
from grpc_tools import protoc
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tests.support.broken_protos import BrokenProtos
from tests.support.protos import HERE

KNOWN = Path(grpc_tools.__file__).parent / "_proto"

# Errors of protoc that lakefeed need not report: a pattern of the message, a pattern of the line, and the reason.
NOT_OURS: list[tuple[str, str, str]] = [
    (r"File not found|Backslashes, consecutive slashes", r"", "a registry's references are the imports, by any path"),
    (r'"\.?google\.protobuf\.\w+" (is not defined|seems to be defined in)', r"", "well-known types need no import"),
    (
        r'"\.?w\d+\.shared[.\w]*" (is not defined|seems to be)',
        r"",
        "references are the imports, so that the type is known",
    ),
    (
        r"is not defined|is not a (message )?type|is resolved to|Expected message type",
        r"\b(rpc|extend)\b",
        "methods and extensions are no data",
    ),
    (r"does not declare \d+ as an extension number|Extension number \d+ has already been used", r"", "the same"),
    (r'Option "[^"]*" unknown|Option "[^"]*" was already set|Option field "[^"]*" is not a repeated', r"", "not read"),
    (r'Option field "[^"]*" is not a field or extension', r"", "not read: the name is another thing's"),
    (
        r'for [\w-]+ option "|Unexpected end of string|for option "[^"]*"\.',
        r"",
        "options but for features are not read",
    ),
    (r'has no value named|Option "[^"]*" is an atomic type', r"", "defaults and options are not read"),
    (
        r"Messages can't have default values|for field default value|negative default value|Already set option",
        r"",
        "defaults are not read",
    ),
    (r'Expected "true" or "false"|Integer out of range', r"\bdefault\b", "the same"),
    (
        r"can specify (repeated field|message) encoding|Message fields can't specify implicit",
        r"",
        "means nothing there",
    ),
    (r"can only be specified for|\[packed = true\]", r"", "both ways to write a repeated field are read"),
    (r"JSON name|JSON camel-case name", r"", "names in JSON are not read"),
]


def compiled(name: str, files: Mapping[str, str]) -> tuple[bytes | None, str]:
    """Compile a file with protoc; return descriptors of the file and its imports, or None, and protoc's messages."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        for path, text in files.items():
            Path(folder, path).write_text(text, newline="")
        out = Path(folder, "set.bin")
        before = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            paths = [f"-I{folder}", f"-I{KNOWN}", "--include_imports", f"--descriptor_set_out={out}"]
            status = protoc.main(["protoc", *paths, name])
        finally:
            os.dup2(before, 2)
            os.close(before)
        said.seek(0)
        return out.read_bytes() if status == 0 else None, said.read().decode(errors="replace")


def of_ours(said: str, text: str) -> list[str]:
    """Return the errors of protoc that lakefeed's parser must report, too: all but those in ``NOT_OURS``."""
    lines = text.split("\n")
    found = []
    excused: set[str] = set()
    for error in said.split("\n"):
        match = re.fullmatch(r"[^:]+:(?:(\d+):\d+:)? (?!warning)(.*)", error)
        if match is None or match[2] in excused or "had errors" in error:
            continue
        # protoc prints some errors a second time without a line number.
        line = lines[min(int(match[1]), len(lines)) - 1] if match[1] else ""
        if any(re.search(message, match[2]) and re.search(place, line) for message, place, _ in NOT_OURS):
            excused.add(match[2])
        else:
            found.append(error)
    return found


def layout(package: Any, parsed: Any, others: Any) -> str:
    return str(package.ProtoTypes.of(parsed, others).toString())


def parsed(package: Any, text: str, others: Any) -> tuple[str, None] | tuple[None, str]:
    """Parse a text with lakefeed; return its layout, or the reason why it was refused; the other is None."""
    try:
        return layout(package, package.ProtoParser.parse(text), others), None
    except IllegalArgumentException as error:
        return None, str(error)


@pytest.mark.parametrize(
    ("count", "accepts", "refuses"), [(100, 0, 50), pytest.param(2_000, 100, 1_000, marks=pytest.mark.slow)]
)
def test_lakefeed_refuses_the_texts_that_protoc_refuses(
    spark: SparkSession, count: int, accepts: int, refuses: int
) -> None:
    first = random.randrange(10**9)
    print(f"seeds from {first}")
    gateway: Any = spark._jvm
    package = gateway.io.lakefeed.protobuf
    accepted = refused = 0
    for seed in range(first, first + count):
        name, files = BrokenProtos(seed).files()
        descriptors, said = compiled(name, files)
        others = gateway.java.util.ArrayList()
        for path, text in files.items():
            if path != name:
                others.add(package.ProtoParser.parse(text))
        own, why = parsed(package, files[name], others)
        if descriptors is not None:
            assert why is None, f"seed {seed}: we refuse what protoc accepts: {why}\n{files[name]}"
            known = package.ProtoDescriptor.files(descriptors)
            assert own == layout(package, known.get(name), known.values()), f"seed {seed}\n{files[name]}"
            accepted += 1
        elif why is not None:
            assert re.match(r"line \d+: .+", why), f"seed {seed}: no line: {why}"
            refused += 1
        else:
            assert not of_ours(said, files[name]), f"seed {seed}: we accept what protoc refuses: {said}\n{files[name]}"
    assert accepted >= accepts
    assert refused > refuses


def test_map_values_stay_length_prefixed_in_a_file_with_delimited_messages(spark: SparkSession) -> None:
    package: Any = spark._jvm.io.lakefeed.protobuf  # type: ignore[union-attr]
    option = "option features.message_encoding = DELIMITED;"
    files = {"m.proto": f'edition = "2023"; {option} message M {{ M one = 1; map<string, M> many = 2; }}'}
    descriptors, said = compiled("m.proto", files)
    assert descriptors is not None, said
    known = package.ProtoDescriptor.files(descriptors)
    own, _ = parsed(package, files["m.proto"], [])
    assert own == layout(package, known.get("m.proto"), known.values())
    assert own is not None
    assert own.count(" delimited") == 1


PROTO3 = 'syntax = "proto3";\n'
REFUSED = {
    "/* never\n ends": "line 1: the comment does not end: add */",
    f"{PROTO3}message A {{ map<bytes, int32> a = 1; }}": "line 2: bytes cannot be the keys of a map",
    f"{PROTO3}message A {{ map<float, int32> a = 1; }}": "line 2: float cannot be the keys of a map",
    f"{PROTO3}message A {{ map<double, int32> a = 1; }}": "line 2: double cannot be the keys of a map",
    f"{PROTO3}message A {{ map<A, int32> a = 1; }}": "line 2: A cannot be the keys of a map",
    f"{PROTO3}message A {{\n int32 a = 536870912; }}": "line 3: the field a cannot have the number 536870912: use 1",
    f"{PROTO3}message A {{ int32 a = 0; }}": "line 2: the field a cannot have the number 0",
    f"{PROTO3}message A {{ int32 a = 19000; }}": "line 2: the field a cannot have the number 19000",
    f"{PROTO3}message A {{ int32 a = 19999; }}": "line 2: the field a cannot have the number 19999",
    f"{PROTO3}message A {{ int32 a = 4294967297; }}": "line 2: the number 4294967297 is too large: use at most 21474",
    f"{PROTO3}message A {{ int32 a = 99999999999999999999; }}": "line 2: the number 99999999999999999999 is too large",
    f"{PROTO3}message A {{ int32 a = 09; }}": "line 2: the number 09 starts with 0 and is not octal: remove the 0",
    f"{PROTO3}message A {{ int32 a = 0x; }}": "line 2: '0x' is not a number",
    f"{PROTO3}message A {{ int32 a = 12b; }}": "line 2: '12b' is not a number",
    f"{PROTO3}message A {{ int32 a = 1.5; }}": "line 2: expected a number, found '1.5'",
    f"{PROTO3}message A {{\n int32 a = 1;\n int32 a = 2; }}": "line 4: the name a is used twice in message A, before",
    f"{PROTO3}message A {{\n int32 a = 1;\n int32 b = 1; }}": "line 4: a and b of message A have the number 1: chang",
    f"{PROTO3}message A {{ reserved 2 to 4; int32 a = 3; }}": "line 2: a of message A has the number 3, which is res",
    f'{PROTO3}message A {{ int32 a = 1; reserved "a"; }}': "line 2: message A uses the name a, which it reserves on",
    f"{PROTO3}message A {{ reserved 2 to 4, 4; }}": "line 2: the ranges 2 to 4 and 4 of message A overlap",
    f"{PROTO3}message A {{ reserved 4 to 2; }}": "line 2: the range 4 to 2 of message A is empty",
    f"{PROTO3}enum E {{ }}": "line 2: the enum E has no value: add one",
    f"{PROTO3}enum E {{ A = 1; }}": "line 2: the first value of the enum E has to be 0",
    f"{PROTO3}enum E {{ A = 0;\n B = 0; }}": "line 3: A and B of enum E have the number 0",
    f"{PROTO3}enum E {{ option allow_alias = true; A = 0; }}": "line 2: allow_alias of enum E is only for values tha",
    f"{PROTO3}enum E {{ A = 0; }} enum F {{ A = 0; }}": "line 2: the name A is used twice in the file, before on lin",
    f"{PROTO3}enum E {{ A = 0; reserved 1, 5 to max; B = 7; }}": "line 2: B of enum E has the number 7, which is res",
    f"{PROTO3}message A {{ oneof o {{ }} }}": "line 2: expected a name, found '}'",
    f"{PROTO3}message A {{ required int32 a = 1; }}": "line 2: proto3 has no required fields: remove 'required'",
    "message A { int32 a = 1; }": "line 1: expected optional, required or repeated, found 'int32'",
    "message A {\n required int32 a 1; }": "line 2: expected '=', found '1'",
    "message A {\n required int32 a = x; }": "line 2: expected a number, found 'x'",
    "message A {": "line 1: expected optional, required or repeated, found the end",
    'import "a': "line 1: text in quotes does not end",
    "nonsense": "line 1: expected message, enum, extend or service, found 'nonsense'",
    "message A { option x = { ": "line 1: expected '}', found the end",
    "message A {" * 200: "line 1: more than 100 messages inside each other: define some outside",
    'edition = "2023";\nmessage A { E e = 1 [features.field_presence = IMPLICIT]; }\n'
    "enum E { option features.enum_type = CLOSED; A0 = 0; }": "line 2: the field e of A has implicit presence and the",
    'edition = "2999";': 'line 1: the edition "2999" is unknown: write one of 2023, 2024',
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_reported_with_its_line_and_a_hint(spark: SparkSession, text: str) -> None:
    gateway: Any = spark._jvm
    assert compiled("a.proto", {"a.proto": text})[0] is None
    _, why = parsed(gateway.io.lakefeed.protobuf, text, gateway.java.util.ArrayList())
    assert why is not None
    assert REFUSED[text] in why


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


def test_lakefeed_parses_every_proto_file_as_protoc_does(spark: SparkSession, tmp_path: Path) -> None:
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
