"""TLS that a JDBC URL of PostgreSQL asks for reaches libpq too, or it does not connect."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from lakefeed.clients.postgresql import CatalogDatabase
from lakefeed.config import tls


def options_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url.removeprefix("jdbc:")).query, keep_blank_values=True))


@pytest.mark.parametrize(
    ("parameters", "required"),
    [
        ("", False),
        *((f"sslmode={mode}", False) for mode in ("disable", "allow", "prefer")),
        *((f"sslmode={mode}", True) for mode in ("require", "verify-ca", "verify-full")),
        ("ssl", True),
        ("ssl=true", True),
        ("ssl=false", False),
        ("ssl=true&sslmode=prefer", False),
    ],
)
def test_a_url_requires_tls_or_allows_plain_text(parameters: str, required: bool) -> None:
    assert tls.is_required(options_of(f"jdbc:postgresql://h/d?{parameters}")) is required


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ("ssl=true", {"sslmode": "verify-full"}),
        ("ssl", {"sslmode": "verify-full"}),
        ("ssl=false", {}),
        ("ssl=true&sslmode=require", {"sslmode": "require"}),
        ("sslmode=verify-ca&sslrootcert=/ca.pem", {"sslmode": "verify-ca", "sslrootcert": "/ca.pem"}),
        ("connectTimeout=3", {}),
    ],
)
def test_postgresql_is_asked_as_its_java_driver_does(parameters: str, options: dict[str, str]) -> None:
    url = f"jdbc:postgresql://h/d?{parameters}"
    assert tls.libpq_options(options_of(url), where="h") == options
    assert CatalogDatabase.of(url).options == options


@pytest.mark.parametrize("parameter", ["sslfactory=a.B", "sslhostnameverifier=a.B", "sslkey=/client.pk8"])
def test_what_libpq_cannot_do_is_refused(parameter: str) -> None:
    with pytest.raises(tls.JavaOnly, match="only Java knows"):
        CatalogDatabase.of(f"jdbc:postgresql://h/d?sslmode=verify-full&{parameter}")
