"""A Protobuf record costs no more time and memory than its size allows, even if a few bytes stand for large values."""

import pytest

from tests.support.hostile import mutated
from tests.support.probe import Probe
from tests.support.proto_rows import row_of, same
from tests.support.protos import message_class

REPEATED = "\n".join(f"  repeated int32 r{at} = {at}; map<int32, int32> m{at} = {at + 1000};" for at in range(1, 150))
CHOICES = "\n".join(f"    int32 c{at} = {at};" for at in range(1, 1_000))
TEXT = f"""syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
message Top {{
  repeated Wide wide = 1;
  map<string, Wide> by_name = 2;
  google.protobuf.Struct notes = 3;
  repeated google.protobuf.Value values = 4;
  Node node = 5;
  repeated uint64 numbers = 6;
  repeated State states = 7;
  repeated google.protobuf.Timestamp times = 8;
  repeated google.protobuf.StringValue wrapped = 9;
  Choice choice = 10;
  Wide one = 11;
  repeated string words = 12;
  google.protobuf.Any any = 13;
  oneof either {{ Wide left = 14; Wide right = 15; }}
  repeated Choice choices = 16;
  repeated Node nodes = 17;
  map<string, string> plain = 18;
  map<uint64, uint64> counts = 19;
  repeated bool flags = 20;
}}
message Wide {{
{REPEATED}
}}
message Choice {{ oneof kind {{
{CHOICES}
  }}
}}
message Node {{
  int32 value = 1; repeated Node nodes = 2; map<string, Node> named = 3; Node next = 4; uint64 big = 5;
  string a = 6; string b = 7; double c = 8; google.protobuf.Struct notes = 9; repeated int32 list = 10;
}}
enum State {{ NONE = 0; }}
"""


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(number: int, times: int, content: bytes = b"") -> bytes:
    for _ in range(times):
        content = field(number, content)
    return content


def amplifiers(size: int) -> dict[str, bytes]:
    """Return payloads of about `size` bytes whose decoded values would be much larger, by name of the attack."""

    def many(piece: bytes) -> bytes:
        return piece * (size // len(piece))

    value, listed = b"\x32\x00", b"\x32\x02\x0a\x00"
    keys = [field(2, field(1, str(at).encode())) for at in range(size // 12)]
    structs = [field(3, field(1, field(1, str(at).encode()))) for at in range(size // 14)]
    return {
        "empty messages": many(b"\x0a\x00"),
        "messages of one field": many(field(1, b"\x08\x05")),
        "messages of an unknown field": many(field(1, b"\xf8\xe1\x09\x05")),
        "empty entries": many(b"\x12\x00"),
        "one key": many(field(2, field(1, b"k") + b"\x12\x00")),
        "entries of messages": many(field(2, field(2, b"\x08\x05"))),
        "keys": b"".join(keys),
        "structs in pieces": b"".join(structs),
        "empty values": many(b"\x22\x00"),
        "lists of values": many(field(4, value)),
        "a list of values": field(4, field(6, many(b"\x0a\x00"))),
        "lists of lists": many(field(4, listed)),
        "values in each other": many(nested(4, 1, nested(6, 1, nested(1, 1)))),
        "empty nodes": field(5, many(b"\x12\x00")),
        "nodes as text": many(b"\x8a\x01\x00"),
        "nodes of nodes": field(5, field(2, many(b"\x12\x00"))),
        "nodes by name": field(5, many(b"\x1a\x00")),
        "node after node": many(field(5, b"\x22\x00")),
        "numbers": field(6, many(b"\xff" * 9 + b"\x01")),
        "small numbers": field(6, many(b"\x05")),
        "unknown symbols": field(7, many(b"\x05")),
        "times": many(b"\x42\x00"),
        "wrappers": many(b"\x4a\x00"),
        "changes of mind": field(10, many(b"\x08\x01\x10\x01")),
        "choices": many(field(16, b"\x08\x01")),
        "one message in pieces": many(b"\x5a\x00"),
        "one message in larger pieces": many(field(11, b"\x08\x05\xc2\x3e\x00")),
        "left and right": many(b"\x72\x00\x7a\x00"),
        "empty words": many(b"\x62\x00"),
        "a long word": field(12, b"a" * size),
        "a word that is not text": field(12, b"\xff" * size),
        "any": many(field(13, field(1, b"u"))),
        "unknown numbers": many(b"\xf8\xe1\x09\x05"),
        "unknown groups": many(b"\xfb\xe1\x09\xfc\xe1\x09"),
        "groups in each other": many(b"\xfb\xe1\x09"),
        "maps of text": many(b"\x92\x01\x00"),
        "maps of numbers": many(b"\x9a\x01\x00"),
        "flags": field(20, many(b"\x01")),
        "nested without end": nested(5, 1, nested(4, size // 4)),
        "deep and wide": many(nested(5, 1, nested(4, 90))),
    }


@pytest.fixture(scope="module")
def options(probe: Probe) -> dict[str, str]:
    [found] = probe.ask(do="protobuf-avro", schemas=[{"text": TEXT, "message": "Top"}])
    return {"format": "protobuf", "reader-schema": found["schema"], "writer-schema": TEXT, "message": "Top"}


def test_no_record_costs_more_than_its_size_allows(probe: Probe, options: dict[str, str]) -> None:
    payloads = amplifiers(30_000)
    costs = probe.hostile(options, [*payloads.values()])
    found = dict(zip(payloads, costs, strict=True))
    # These attacks are valid records with rows within the limits, so they decode without an error.
    for name in ("empty messages", "keys", "small numbers", "numbers", "times", "empty words", "one key", "flags"):
        assert found[name].error is None, (name, found[name])
    assert "may take" in str(found["messages of one field"].error)
    assert str(found["messages of one field"].error).startswith("wide[")


def test_the_memory_limit_of_a_small_record_includes_its_row_and_its_error(
    probe: Probe, options: dict[str, str]
) -> None:
    found = probe.hostile(options, [payload for size in (1_500, 2_003, 3_000) for payload in amplifiers(size).values()])
    assert any("may take" in str(each.error) for each in found)


@pytest.mark.parametrize(
    ("count", "seed"), [(300, 15), *(pytest.param(500, seed, marks=pytest.mark.slow) for seed in range(10))]
)
def test_mutated_protobuf_records_cost_no_more_than_their_size_allows(
    probe: Probe, options: dict[str, str], count: int, seed: int
) -> None:
    small, large = amplifiers(300), amplifiers(2_000)
    good = [small[name] for name in ("keys", "structs in pieces", "lists of lists", "choices", "deep and wide")]
    probe.hostile(
        options, mutated([b"".join(good), *good] if count == 300 else [*large.values()], count=count, seed=seed)
    )


@pytest.mark.slow
def test_records_of_a_megabyte_cost_no_more_than_their_size_allows(probe: Probe, options: dict[str, str]) -> None:
    probe.hostile(options, [*amplifiers(1_000_000).values()])


def test_a_message_after_an_empty_message_keeps_its_values(probe: Probe, options: dict[str, str]) -> None:
    """If an empty message shared its row with the next message, it would show the values of that message."""
    top = message_class({"top.proto": TEXT}, "Top")
    message = top(
        wide=[{}, {"r1": [1]}, {}, {"m2": {1: 2}}, {}], by_name={"a": {}, "b": {"r2": [5]}}, choices=[{}, {"c3": 1}]
    )
    for payload in (message.SerializeToString(), b"", message.SerializeToString()):
        [result] = probe.decode(options, [payload])
        assert same(result["value"], row_of(top.FromString(payload), top.DESCRIPTOR))
