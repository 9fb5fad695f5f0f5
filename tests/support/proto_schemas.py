"""Generate random Protobuf schemas, a later version of each, and messages of the first version, from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Syntax = Literal["proto2", "proto3", "edition"]
Label = Literal["", "optional", "required", "repeated"]

INTS = ["int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64", "uint64", "fixed64"]
SCALARS = [*INTS, "double", "float", "bool", "string", "bytes"]
WRAPPERS = ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"]
KNOWN = [
    *(
        f"google.protobuf.{each}"
        for each in ("Timestamp", "Duration", "Any", "FieldMask", "Struct", "Value", "ListValue")
    ),
    *(f"google.protobuf.{each}Value" for each in WRAPPERS),
]
KEYS = [*INTS, "bool", "string"]
WIDER = {
    "int32": "int64",
    "sint32": "int64",
    "uint32": "int64",
    "sfixed32": "sint64",
    "float": "double",
    "bool": "string",
}
ODD_NAMES = [
    "message",
    "optional",
    "string",
    "rpc",
    "_",
    "__x",
    "aBc",
    "Upper",
    "reserved",
    "package",
    "max",
    "map",
    "to",
]
IMPORTED = {
    "timestamp": {"Timestamp"},
    "duration": {"Duration"},
    "any": {"Any"},
    "field_mask": {"FieldMask"},
    "struct": {"Struct", "Value", "ListValue"},
    "wrappers": {f"{each}Value" for each in WRAPPERS},
}


@dataclass
class Field:
    """A field; ``key`` is a map's key type, and ``target`` is the message or enum that ``kind`` names."""

    name: str
    number: int
    kind: str
    label: Label = ""
    key: str | None = None
    oneof: str | None = None
    target: Message | Enum | None = None
    group: bool = False
    options: str = ""


@dataclass
class Enum:
    name: str
    values: list[tuple[str, int]]


@dataclass
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)


@dataclass
class Schema:
    """The two versions of a schema; messages of the type with the index ``top`` become rows."""

    number: int
    syntax: Syntax
    writer: list[Message]
    reader: list[Message]
    top: int
    shared: bool

    @property
    def name(self) -> str:
        return self.writer[self.top].name

    def files(self) -> dict[str, str]:
        """Return the files of both versions, in separate packages, and their imports."""
        made = {}
        for kind, messages in (("w", self.writer), ("r", self.reader)):
            package = f"{kind}{self.number}"
            if self.shared:
                made[f"{package}_shared.proto"] = _head(
                    self.syntax, f"{package}.shared", _text(messages[0], self.syntax)
                )
            imported = f'import "{package}_shared.proto";\n' if self.shared else ""
            own = messages[1:] if self.shared else messages
            body = "".join(_text(each, self.syntax) for each in own)
            made[f"{package}.proto"] = _head(self.syntax, package, imported + body)
        return made


def _head(syntax: Syntax, package: str, body: str) -> str:
    first = 'edition = "2023";' if syntax == "edition" else f'syntax = "{syntax}";'
    words = set(re.findall(r"google\.protobuf\.(\w+)", body))
    imports = "".join(f'import "google/protobuf/{file}.proto";\n' for file, names in IMPORTED.items() if words & names)
    return f"{first} // {package}\npackage {package};\n{imports}{body}"


def _text(message: Message, syntax: Syntax, indent: str = "") -> str:
    inner = indent + "  "
    lines = [f"{indent}message {message.name} {{"]
    lines += [_text(each, syntax, inner).rstrip("\n") for each in message.messages]
    for enum in message.enums:
        numbers = [number for _, number in enum.values]
        alias = "option allow_alias = true; " if len(set(numbers)) < len(numbers) else ""
        body = " ".join(f"{name} = {number};" for name, number in enum.values)
        lines.append(f"{inner}enum {enum.name} {{ {alias}{body} }}")
    oneofs: dict[str, list[str]] = {}
    for each in message.fields:
        line = _field(each, syntax)
        if each.oneof is None:
            lines.append(inner + line)
        else:
            oneofs.setdefault(each.oneof, []).append(line)
    lines += [f"{inner}oneof {name} {{ {' '.join(members)} }}" for name, members in oneofs.items()]
    return "\n".join([*lines, f"{indent}}}", ""])


def _field(each: Field, syntax: Syntax) -> str:
    options = f" [{each.options}]" if each.options else ""
    if each.group:
        return f"{each.label or 'optional'} group {each.kind} = {each.number} {{ optional int32 in_group = 1; }}"
    kind = f"map<{each.key}, {each.kind}>" if each.key else each.kind
    label: str = each.label
    if syntax == "proto2" and not label and not each.key and each.oneof is None:
        label = "optional"
    return f"{label} {kind} {each.name} = {each.number}{options};".strip()


class Schemas:
    """A generator of schemas and messages.

    Args:
        seed: decides all schemas and messages.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._left = 0

    def schema(self, number: int) -> Schema:
        """Return a schema of 0 to 500 fields and its later version."""
        chance = self.chance
        syntax: Syntax = chance.choice(["proto2", "proto3", "proto3", "edition"])
        shared = chance.random() < 0.3
        wide = number % 50 == 17
        messages = [Message(f"M{at}") for at in range((1 if wide else chance.randrange(1, 5)) + shared)]
        for each in messages:
            each.enums = [self._enum(f"E{each.name}{at}", syntax) for at in range(chance.randrange(2))]
            each.messages = [Message(f"N{each.name}{at}") for at in range(chance.randrange(2))]
        most = 500 if wide else 12
        for at, each in enumerate(messages):
            visible = messages[:1] if shared and at == 0 else messages
            own = [each, *each.messages]
            for message in own:
                others = own if shared and at == 0 else [*visible, *each.messages]
                least = 1 if message is not messages[-1] or (len(messages) == 1 and number % 7) else 0
                count = chance.randrange(least, most + 1) if message is not messages[-1] or most < 500 else most
                self._fill(message, count, syntax, others, each.enums)
        writer_package, reader_package = f"w{number}", f"r{number}"
        reader = self._later(messages, syntax)
        for package, version in ((writer_package, messages), (reader_package, reader)):
            _name_types(version, package, shared=shared)
        return Schema(number, syntax, messages, reader, len(messages) - 1, shared)

    def _enum(self, name: str, syntax: Syntax) -> Enum:
        chance = self.chance
        first = 0 if syntax != "proto2" else chance.choice([0, 0, 3, -1])
        values = [(f"{name}_A", first), (f"{name}_B", first + 1), (f"{name}_C", 2**31 - 1)]
        if chance.random() < 0.3:
            values.append((f"{name}_AGAIN", first + 1))
        return Enum(name, values)

    def _fill(self, message: Message, count: int, syntax: Syntax, others: list[Message], enums: list[Enum]) -> None:
        numbers = iter(self._numbers(count))
        oneof: str | None = None
        for at in range(count):
            # Types that contain each other in many fields would expand to too many columns.
            nested = sum(isinstance(each.target, Message) for each in message.fields)
            made = self._field(at, next(numbers), syntax, others if nested < 2 else [], enums)
            if sum("required" in (each.label, *each.options.lower().split("_")) for each in message.fields) > 20:
                made = replace(made, label="optional" if made.label == "required" else made.label, options="")
            plain = made.key is None and made.label in ("", "optional") and not made.group and not made.options
            if plain and self.chance.random() < 0.2:
                oneof = oneof or f"choice{at}"
                made = replace(made, label="", oneof=oneof)
            elif self.chance.random() < 0.3:
                oneof = None
            message.fields.append(made)

    def _numbers(self, count: int) -> list[int]:
        ranges = [range(1, 16), range(16, 2048), range(2048, 19_000), range(20_000, 2**29)]
        numbers: set[int] = set()
        while len(numbers) < count:
            numbers.add(self.chance.choice(self.chance.choice(ranges)))
        found = sorted(numbers)
        self.chance.shuffle(found)
        return found

    def _field(self, at: int, number: int, syntax: Syntax, others: list[Message], enums: list[Enum]) -> Field:
        chance = self.chance
        name = f"{chance.choice(ODD_NAMES)}{at}" if chance.random() < 0.2 else f"f{at}"
        if syntax == "proto2" and chance.random() < 0.05:
            label: Label = chance.choice(["optional", "repeated"])
            group = f"G{at}{number}"
            return Field(group.lower(), number, group, label, group=True)
        target: Message | Enum | None = None
        kind = chance.choice(SCALARS)
        roll = chance.random()
        if roll < 0.15 and enums:
            target = chance.choice(enums)
        elif roll < 0.35 and others:
            target = chance.choice(others)
        elif roll < 0.5:
            kind = chance.choice(KNOWN)
        labels: list[Label] = {
            "proto2": ["optional", "optional", "required", "repeated"],
            "proto3": ["", "", "optional", "repeated"],
            "edition": ["", "", "repeated"],
        }[syntax]  # type: ignore[assignment]
        label = chance.choice(labels)
        if isinstance(target, Message) and label == "required":
            label = "optional"  # A required field of a message type could be recursive, so that no message is complete.
        if chance.random() < 0.12 and not (isinstance(target, Enum) and target.values[0][1] != 0):
            # The reference library refuses ``7Entry``, which would be the entry type of a map field ``_7``.
            return Field(f"m{name}" if name[0] == "_" else name, number, kind, key=chance.choice(KEYS), target=target)
        options = ""
        if syntax == "edition":
            scalar = target is None and kind in SCALARS
            if label == "repeated":
                options = (
                    chance.choice(["", "features.repeated_field_encoding = EXPANDED"])
                    if kind in INTS and scalar
                    else ""
                )
            elif scalar or isinstance(target, Enum):
                options = chance.choice(
                    ["", "features.field_presence = IMPLICIT", "features.field_presence = LEGACY_REQUIRED"]
                )
            if isinstance(target, Message):
                options = chance.choice(["", "features.message_encoding = DELIMITED"])
        elif label == "repeated" and target is None and kind in INTS:
            options = chance.choice(["", "packed = true", "packed = false"])
        return Field(name, number, kind, label, target=target, options=options)

    def _later(self, messages: list[Message], syntax: Syntax) -> list[Message]:
        """Return the reader's version: it drops and adds fields, widens types and reorders fields."""
        chance = self.chance
        copies: dict[int, Message | Enum] = {}

        def copied(message: Message) -> Message:
            made = Message(message.name, enums=[Enum(each.name, list(each.values)) for each in message.enums])
            copies[id(message)] = made
            copies.update({id(each): other for each, other in zip(message.enums, made.enums, strict=True)})
            made.messages = [copied(each) for each in message.messages]
            return made

        def fill(message: Message, made: Message) -> None:
            for each, other in zip(message.messages, made.messages, strict=True):
                fill(each, other)
            kept = [each for each in message.fields if chance.random() < 0.85]
            made.fields = [self._changed(each, copies) for each in kept]
            if chance.random() < 0.5 or (not made.fields and message.fields):
                made.fields.append(
                    Field("later", 500_000_000, chance.choice(SCALARS), "optional" if syntax == "proto2" else "")
                )
            if chance.random() < 0.3:
                chance.shuffle(made.fields)

        later = [copied(each) for each in messages]
        for message, made in zip(messages, later, strict=True):
            fill(message, made)
        return later

    def _changed(self, each: Field, copies: dict[int, Message | Enum]) -> Field:
        kind = each.kind
        if each.target is None and kind in WIDER and not each.group and self.chance.random() < 0.2:
            kind = WIDER[kind]
        options = each.options if each.label != "repeated" or kind in INTS else ""
        target = copies[id(each.target)] if each.target is not None else None
        return replace(each, kind=kind, options=options, target=target)

    def fill(self, message: Any, depth: int = 0) -> Any:
        """Set some fields of a message of the reference library at random; return the message."""
        chance = self.chance
        name = message.DESCRIPTOR.full_name
        if name == "google.protobuf.Timestamp":
            message.seconds = chance.choice([0, -62135596800, 253402300799, chance.randrange(-(10**10), 10**10)])
            message.nanos = chance.choice([0, 1, 999_999_999, 5_000_000, 123_456_000])
            return message
        if name == "google.protobuf.Value" and (depth > 4 or self._left <= 0):
            message.number_value = 1.5
            return message
        for each in message.DESCRIPTOR.fields:
            required = each.is_required
            deep = each.message_type is not None and (depth > 4 or self._left <= 0)
            if not required and (deep or chance.random() < 0.4):
                continue
            self._left -= 1
            self._set(message, each, depth)
        return message

    def _set(self, message: Any, each: Any, depth: int) -> None:
        entry = each.message_type is not None and each.message_type.GetOptions().map_entry
        if entry:
            key, value = each.message_type.fields_by_name["key"], each.message_type.fields_by_name["value"]
            entries = getattr(message, each.name)
            for _ in range(self.chance.randrange(4)):
                if value.message_type is not None:
                    self.fill(entries[self._scalar(key)], depth + 1)
                else:
                    entries[self._scalar(key)] = self._scalar(value)
        elif each.is_repeated:
            for _ in range(self.chance.randrange(4)):
                if each.message_type is not None:
                    self.fill(getattr(message, each.name).add(), depth + 1)
                else:
                    getattr(message, each.name).append(self._scalar(each))
        elif each.message_type is not None:
            getattr(message, each.name).SetInParent()
            self.fill(getattr(message, each.name), depth + 1)
        else:
            setattr(message, each.name, self._scalar(each))

    def _scalar(self, each: Any) -> Any:
        chance = self.chance
        if each.enum_type is not None:
            known = [value.number for value in each.enum_type.values]
            return chance.choice(known) if each.enum_type.is_closed else chance.choice([*known, 77, -5])
        if each.type in (1, 2):
            # Each of these numbers has the same text as a float and as a double.
            return chance.choice([0.0, -0.5, 1.25, 1024.0, -3.0])
        if each.type == 8:
            return chance.random() < 0.5
        if each.type == 9:
            return chance.choice(["", "a", "Zürich 🚕", '"\\\n', "x" * 200])
        if each.type == 12:
            return chance.choice([b"", b"\0\xff", b"abc"])
        bits = 32 if each.type in (5, 7, 13, 15, 17) else 64
        signed = each.type not in (4, 6, 7, 13)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return chance.choice([0, 1, low, high, chance.randrange(low, high)])

    def payload(self, kind: Any) -> bytes:
        """Return a message's bytes: whole, in two pieces, or with unknown fields."""
        self._left = 200
        whole = bytes(self.fill(kind()).SerializeToString())
        roll = self.chance.random()
        if roll < 0.2:
            return whole + bytes(self.fill(kind()).SerializeToString())
        # Field number 19999 is reserved, so no schema has it.
        return whole + b"\xfa\xe1\x09\x02hi" + b"\xf8\xe1\x09\x05" if roll < 0.4 else whole


def _name_types(messages: list[Message], package: str, *, shared: bool) -> None:
    """Set each message or enum field's kind to the full name of its type, as in a file."""
    names: dict[int, str] = {}

    def collect(message: Message, around: str) -> None:
        names[id(message)] = f"{around}.{message.name}"
        names.update({id(each): f"{around}.{message.name}.{each.name}" for each in message.enums})
        for each in message.messages:
            collect(each, f"{around}.{message.name}")

    for at, message in enumerate(messages):
        collect(message, f".{package}.shared" if shared and at == 0 else f".{package}")
    for message in _all(messages):
        for each in message.fields:
            if each.target is not None:
                each.kind = names[id(each.target)]


def _all(messages: list[Message]) -> Iterator[Message]:
    for message in messages:
        yield message
        yield from _all(message.messages)
