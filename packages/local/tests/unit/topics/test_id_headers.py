"""Commands move a schema id from a header to the prefix of the value, where decoders expect it."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from lakefeed.errors import ConfigError
from lakefeed_local.topics.reading_plan import IdHeader, id_header, prefix_of

GUID = uuid.UUID("8f3c1d6e-0a1b-4c2d-9e3f-001122334455")


class Known:
    """A registry with a single schema, whose id is 7."""

    def found_at(self, what: str, *path: str, pick: Callable[[Any], int | None], query: Any = None) -> int:
        answers: dict[str, Any] = {
            f"schema GUID {GUID}": [{"context": "other", "id": 9}, {"context": ".", "id": 7}],
            "global id 70": {"versions": [{"contentId": 7}]},
        }
        found = pick(answers[what])
        assert found is not None
        return found


KNOWN: Any = Known()


@pytest.mark.parametrize(
    ("name", "value", "prefix"),
    [
        ("__value_schema_id", b"\1" + GUID.bytes, b"\0\0\0\0\7"),
        ("__key_schema_id", b"\1" + GUID.bytes + b"\2\2", b"\0\0\0\0\7\2\2"),
        ("__value_schema_id", b"\0\0\0\0\7", b"\0\0\0\0\7"),
        ("apicurio.value.contentId", (7).to_bytes(8, "big"), b"\0\0\0\0\7"),
        ("apicurio.value.globalId", (70).to_bytes(8, "big"), b"\0\0\0\0\7"),
    ],
)
def test_a_header_with_an_id_becomes_the_prefix_of_a_value(name: str, value: bytes, prefix: bytes) -> None:
    assert prefix_of(IdHeader(name, value), KNOWN) == prefix


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("__value_schema_id", b""),
        ("__value_schema_id", b"\1" + GUID.bytes[:15]),
        ("__value_schema_id", b"\7" + GUID.bytes),
        ("apicurio.value.contentId", b"\0\0\0\7"),
        ("apicurio.value.contentId", (2**40).to_bytes(8, "big")),
    ],
)
def test_a_malformed_header_is_refused(name: str, value: bytes) -> None:
    with pytest.raises(ConfigError, match=f"the header {name} has"):
        prefix_of(IdHeader(name, value), KNOWN)


def test_headers_of_the_key_and_headers_without_a_value_are_ignored() -> None:
    found = id_header([("other", b"x"), ("__key_schema_id", b"k"), ("__value_schema_id", None)], "value")
    assert found is None
    assert id_header([("other", b"x"), ("__key_schema_id", b"k")], "key") == ("__key_schema_id", b"k")
