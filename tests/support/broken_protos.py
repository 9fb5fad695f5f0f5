"""Generate texts of `.proto` files with mistakes: mutations of valid files, from a seed."""

import random
import re

from tests.support.proto_schemas import Schemas

# Together the two texts contain every kind of statement, so that mutations reach the whole grammar.
GRAMMAR = {
    "proto2": """syntax = "proto2";
package g2; /* a
comment */
import "google/protobuf/descriptor.proto"; // another
option java_package = "a" "b\\x41\\n";
extend google.protobuf.FieldOptions { optional string note = 50001; optional group Extra = 50002 { } }
message A {
  option deprecated = true;
  required int32 id = 1 [default = -0x1F, deprecated = false];
  optional string s = 2 [default = "x\\"];}", (note) = "a, b]", json_name = "t"];
  repeated group Item = 3 { optional int32 q = 1; reserved 2 to 4, 017; }
  extensions 100 to 199, 300 to max [verification = UNVERIFIED];
  reserved 5, 7 to 9;
  reserved "foo", "bar";
  optional B.C bc = 10;
  oneof k { int64 a = 11 [default = 5]; group G = 12 { optional bool z = 1 [default = true]; } string optional = 13; }
  extend A { optional A more = 100; repeated uint64 counts = 101 [packed = true]; }
  map<int32, B> by_zone_id = 20;
  map<string, .g2.B.C.E> kinds = 23;
  optional float f = 21 [default = -1e-5];
  optional double h = 24 [default = inf];
  optional .g2.B message_ = 22;
  optional uint64 u = 25 [default = 18446744073709551615];
}
message B {
  message C {
    optional E e = 1 [default = TWO];
    enum E {
      option allow_alias = true; ZERO = 0; NIL = 0; TWO = -2 [deprecated = true]; reserved -9, 9 to 11; reserved "TEN";
    }
  }
  ;
}
enum Closed { FIRST = 1; SECOND = -2147483648; reserved 5 to max; }
service S {
  option deprecated = false;
  rpc Do(A) returns (stream B);
  rpc Again(stream .g2.A) returns (B.C) { option idempotency_level = IDEMPOTENT; ; }
}
""",
    "proto3": """syntax = "proto3";
package g.three;
import public "google/protobuf/timestamp.proto";
message Trip {
  enum State { UNKNOWN = 0; DONE = 1; STOPPED = 0x7fffffff; reserved 5 to 7; reserved "LOST"; }
  message Stop { int32 zone = 1; Stop next = 2; optional State state = 3; }
  string id = 1;
  repeated Stop stops = 2;
  map<string, Stop> by_name = 3;
  map<bool, bytes> flags = 4;
  map<sfixed64, State> states = 5;
  oneof amount { int64 cents = 6; google.protobuf.Timestamp at = 7; Stop stop = 8; }
  optional double rate = 9 [json_name = "theRate"];
  repeated int32 numbers = 10 [packed = false];
  Trip.Stop last = 536870911;
  g.three.Trip before = 18999;
  reserved 20000 to max2;
  reserved "old", 'older';
}
message Empty {}
service Trips { rpc Get(Empty) returns (Trip) {} }
""".replace("max2", "30000"),
    "edition": """edition = "2023";
package ed;
option features.field_presence = IMPLICIT;
option features.message_encoding = DELIMITED;
message M {
  int32 a = 1;
  int32 b = 2 [features.field_presence = EXPLICIT, default = 7];
  int32 c = 3 [features.field_presence = LEGACY_REQUIRED];
  M d = 4;
  M e = 5 [features.message_encoding = LENGTH_PREFIXED, deprecated = true];
  map<string, int32> m = 6;
  oneof o { string x = 7; M y = 8; }
  repeated int32 r = 9 [features = { repeated_field_encoding: EXPANDED }];
  extensions 100 to 200;
  reserved old, older;
  reserved 300 to max;
  Closed k = 10 [features.field_presence = EXPLICIT];
  enum Open { option features.enum_type = OPEN; NONE = 0; ONE = 1; }
}
enum Closed { option features.enum_type = CLOSED; ANY = 5; reserved ALL; }
extend M { repeated string more = 100; }
""",
}
_WORDS = """
syntax edition package import public weak option message enum extend extensions reserved oneof map group
service rpc returns stream repeated optional required to max int32 uint64 sint32 fixed64 bool string bytes
double float A B M Trip true false inf nan default json_name packed deprecated allow_alias features
field_presence IMPLICIT EXPLICIT CLOSED OPEN DELIMITED E = ; , . - + { } [ ] ( ) < > : / " ' "proto2" "proto3"
"2023" "2024" "x" 'y' "\\q" "\\u12" "\\x"
"""
WORDS = _WORDS.split()
_NUMBERS = """
0 1 2 3 -1 -0 5 18999 19000 19500 19999 20000 536870911 536870912 2147483647 2147483648 4294967295 4294967296
9223372036854775808 18446744073709551615 18446744073709551616 99999999999999999999999 09 017 018 0x 0x1F 0XfF
0x1G 1e5 1e 1.5 .5 1. 1.2.3 1e+ 12abc 1f 0x1FFFFFFFFFFFFFFFFF 00
"""
NUMBERS = _NUMBERS.split()
CHARACTERS = [
    '"',
    "'",
    "/*",
    "*/",
    "//",
    "\\",
    "é",
    "\0",
    "$",
    "\ufeff",
    "\n",
    "\t",
    "\x0b",
    "\x7f",
    "#",
    "@",
    "{",
    "}",
]
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|[0-9][\w.]*|//[^\n]*|/\*.*?\*/|\s+|.', re.DOTALL
)


class BrokenProtos:
    """A generator of files with one or two mutations.

    Args:
        seed: decides all files.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._schemas = Schemas(seed)
        self._count = 0

    def files(self) -> tuple[str, dict[str, str]]:
        """Return the name of a file with mistakes, and the texts of this file and its imports, by name."""
        chance = self._chance
        self._count += 1
        if chance.random() < 0.5:
            text = GRAMMAR[chance.choice(list(GRAMMAR))]
            return "broken.proto", {"broken.proto": self._broken(text)}
        schema = self._schemas.schema(self._count)
        name = f"w{schema.number}.proto"
        files = {path: text for path, text in schema.files().items() if path.startswith("w")}
        return name, {**files, name: self._broken(files[name])}

    def _broken(self, text: str) -> str:
        before = text
        while text == before:
            for _ in range(self._chance.choice([1, 1, 1, 2])):
                # The first mutation may have left only a few characters.
                if len(text.split()) > 3:
                    text = self._mutation(text)
        return text

    def _mutation(self, text: str) -> str:
        chance = self._chance
        kind = chance.randrange(10)
        if kind == 0:
            at = chance.randrange(len(text) + 1)
            return text[:at] + chance.choice(CHARACTERS) + text[at:]
        if kind == 1:
            at = chance.randrange(len(text))
            return chance.choice([text[:at], text[:at] + text[at + 1 :]])
        if kind == 2:
            return self._lines(text)
        tokens = _TOKEN.findall(text)
        solid = [at for at, token in enumerate(tokens) if token.strip()]
        if kind in (3, 4):
            solid = [at for at in solid if tokens[at][0].isdigit()] or solid
            tokens[chance.choice(solid)] = chance.choice([*NUMBERS, *(each for each in tokens if each[0].isdigit())])
        elif kind == 5:
            tokens[chance.choice(solid)] = ""
        elif kind == 6:
            one = chance.randrange(len(solid) - 1)
            first, second = solid[one], solid[chance.choice([one + 1, chance.randrange(len(solid))])]
            tokens[first], tokens[second] = tokens[second], tokens[first]
        elif kind == 7:
            tokens.insert(chance.choice(solid), f" {chance.choice([*WORDS, *NUMBERS])} ")
        elif kind == 8:
            tokens[chance.choice(solid)] = chance.choice(WORDS)
        else:
            # Replace the name of a field, a type or a value by another name in the file.
            names = [at for at in solid if tokens[at][0].isalpha() or tokens[at][0] == "_"]
            tokens[chance.choice(names)] = tokens[chance.choice(names)]
        return "".join(tokens)

    def _lines(self, text: str) -> str:
        """Duplicate, remove or move a line."""
        lines = text.splitlines(keepends=True)
        at, other = self._chance.randrange(len(lines)), self._chance.randrange(len(lines) + 1)
        kind = self._chance.randrange(3)
        if kind == 0:
            lines.insert(other, lines[at])
        else:
            line = lines.pop(at)
            if kind == 1:
                lines.insert(min(other, len(lines)), line)
        return "".join(lines)
