"""For random Protobuf schemas and messages, lakefeed's rows equal those of the reference library."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tests.support import wire_format
from tests.support.probe import Probe, base64_text
from tests.support.proto_rows import row_of, same
from tests.support.proto_schemas import Schema, Schemas
from tests.support.protos import descriptor_set
from tests.support.registry_in_a_thread import RegistryInAThread

SEED = int(os.environ.get("SEED") or 15)
MESSAGES = 6


@pytest.fixture
def registry() -> Iterator[RegistryInAThread]:
    with RegistryInAThread() as running:
        yield running


def indexed(indexes: list[int]) -> bytes:
    """Encode Confluent's message indexes, all below 64."""
    return b"\0" if indexes == [0] else bytes([2 * len(indexes), *(2 * each for each in indexes)])


def register(registry: RegistryInAThread, schema: Schema) -> None:
    texts = schema.files()
    answer: dict[str, Any] = {"schema": texts[f"w{schema.number}.proto"], "schemaType": "PROTOBUF"}
    if schema.shared:
        name = f"w{schema.number}_shared.proto"
        answer["references"] = [{"name": name, "subject": name, "version": 1}]
        registry.versions[name, 1] = {"schema": texts[name], "schemaType": "PROTOBUF"}
    registry.schemas[schema.number + 1] = answer


@pytest.mark.parametrize("seed", [SEED, *(pytest.param(SEED + at, marks=pytest.mark.slow) for at in range(1, 21))])
def test_rows_and_parsed_schemas_equal_those_of_the_reference_library(
    probe: Probe, registry: RegistryInAThread, seed: int
) -> None:
    print(f"SEED={seed}")
    draw = Schemas(seed)
    schemas = [draw.schema(number) for number in range(100)]
    files = {name: text for each in schemas for name, text in each.files().items()}
    compiled = descriptor_set(files)
    requests = [{"name": name, "text": text} for name, text in files.items()]
    for (name, text), read in zip(
        files.items(), probe.ask(do="protobuf-files", set=base64_text(compiled), files=requests), strict=True
    ):
        assert read["text"] == read["descriptor"], f"SEED={seed} {name}\n{text}"
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    found = probe.ask(
        do="protobuf-avro",
        schemas=[
            {
                "text": files[f"{kind}{each.number}.proto"],
                "references": [files[f"{kind}{each.number}_shared.proto"]] if each.shared else [],
                "message": each.name,
            }
            for each in schemas
            for kind in "rw"
        ],
    )
    for at, schema in enumerate(schemas):
        register(registry, schema)
        writer = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"w{schema.number}.{schema.name}"))
        reader = pool.FindMessageTypeByName(f"r{schema.number}.{schema.name}")
        frame = wire_format.build(schema.number + 1, indexed(found[2 * at + 1]["indexes"]))
        payloads = [draw.payload(writer) for _ in range(MESSAGES)] + [b"", b"\x08"]
        options = {
            "format": "protobuf",
            "reader-schema": found[2 * at]["schema"],
            "registry-url": registry.url,
            "registry-patience-seconds": "30",
        }
        results = probe.decode(options, [frame + each for each in payloads])
        names = {*reader.fields_by_name} & {*writer.DESCRIPTOR.fields_by_name}
        for payload, result in zip(payloads, results, strict=True):
            shown = f"SEED={seed} {schema.files()} {payload.hex()} {result}"
            try:
                message = writer.FromString(payload)
            except DecodeError:
                assert result["value"] is None, shown
                assert result["error"], shown
                continue
            if not names and "shares no field" in str(result["error"]):
                assert result["value"] is None, shown
            elif result["error"] is not None:
                # lakefeed refuses a message without a required field. The reference library decodes it, and reports the
                # missing field only by IsInitialized.
                assert "the required field of" in result["error"], shown
                assert not message.IsInitialized(), shown
            else:
                assert same(result["value"], row_of(message, reader)), shown
