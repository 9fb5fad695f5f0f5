"""No client waits forever for a database that accepts a connection and never answers."""

import time

import pytest
from pydantic import SecretStr

from lakefeed.clients.iceberg.catalogs import log_in
from lakefeed.config.connections import Catalog
from lakefeed.errors import LakefeedError
from lakefeed_jdbc import session
from lakefeed_jdbc.dialect import MARIADB, POSTGRESQL
from lakefeed_jdbc.settings import JdbcSinkConfig
from tests.support.misbehaving import misbehaving


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_a_session_does_not_wait_forever_for_a_silent_database(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "READ_SECONDS", 1)
    monkeypatch.setattr(session, "TIMEOUT_SECONDS", 2)
    began = time.monotonic()
    with misbehaving("silent") as address:
        sink = JdbcSinkConfig(url=f"jdbc:{kind}://{address}/d", user="u", password=SecretStr("p"), table="t")
        with pytest.raises(LakefeedError), session.PythonDatabase(sink).session():
            pass
    assert time.monotonic() - began < 10


@pytest.mark.waits
def test_a_catalog_does_not_wait_forever_for_a_silent_database() -> None:
    began = time.monotonic()
    with misbehaving("silent") as address:
        catalog = Catalog(
            type="jdbc",
            uri=f"jdbc:postgresql://{address}/d",
            warehouse="s3://lake/w",
            username="u",
            password=SecretStr("p"),
        )
        with pytest.raises(LakefeedError):
            log_in(catalog, timeout=2)
    assert time.monotonic() - began < 10


def test_the_java_drivers_have_timeouts() -> None:
    for dialect in (POSTGRESQL, MARIADB):
        assert {"connectTimeout", "socketTimeout"} <= dialect.properties.keys()
    assert "loginTimeout" in POSTGRESQL.properties
    rest = Catalog(type="rest", uri="http://h:1").settings()
    assert {"rest.client.connection-timeout-ms", "rest.client.socket-timeout-ms"} <= rest.keys()
