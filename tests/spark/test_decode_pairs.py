"""For random pairs of schemas, lakefeed decodes the same values as Avro's own readers in Java and Python."""

import random

import pytest

from tests.support.avro_pairs import pair
from tests.support.probe import Probe, base64_text

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_lakefeed_and_avro_java_decode_the_same_values_for_random_pairs_of_schemas(probe: Probe, count: int) -> None:
    first = random.randrange(10**9)
    print(f"seeds from {first}")
    pairs = [pair(first + at) for at in range(count)]
    found = probe.ask(
        do="compare",
        pairs=[
            {"writer": each.writer, "reader": each.reader, "payloads": [*map(base64_text, each.payloads)]}
            for each in pairs
        ],
    )
    for each, result in zip(pairs, found, strict=True):
        assert not result["differences"], f"{each}\n{result['differences'][:2]}"
    # Most records must be readable, so that the test compares rows and not only errors.
    assert sum(result["rows"] for result in found) > 2 * count


def test_an_empty_payload_is_valid_only_if_the_writers_schema_encodes_to_no_bytes(probe: Probe) -> None:
    writer = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}'
    reader = writer.replace('"null"}', '"null"}, {"name": "a", "type": "int", "default": 7}')
    [found] = probe.decode({"writer-schema": writer, "reader-schema": reader}, [b""])
    assert found["error"] is None
    assert found["value"] == [["n", None], ["a", "7"]]
    [empty] = probe.decode({"writer-schema": reader, "reader-schema": reader}, [b""])
    assert empty["error"] == "empty: 0 bytes"
