"""The block ``sink.jdbc``."""

from typing import Any

import pytest
from pydantic import ValidationError

from lakefeed_jdbc.settings import Address, JdbcSinkConfig

BLOCK = {"url": "jdbc:postgresql://db/shop", "user": "feeder", "password": "s3cret", "table": "rows"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "jdbc:oracle://db/shop"}, "not an address of a database"),
        ({"url": "jdbc:postgresql://db"}, "not an address of a database"),
        ({"url": "jdbc:mariadb://me:s3cret@db/shop"}, "credentials do not belong in a URL"),
        ({"url": "jdbc:mariadb://db/shop?password=s3cret"}, "credentials do not belong in a URL"),
        ({"table": "a.b.c"}, "pattern"),
        ({"table": "{topic}"}, "pattern"),
        ({"table": "lakefeed_commits"}, "belong to the ledger"),
        ({"mode": "upsert"}, "requires keys"),
        ({"keys": ["id"]}, "needs mode: upsert"),
        ({"mode": "upsert", "keys": ["id"], "order_by": ["at"]}, "on_delete: mark"),
        ({"tabel": "rows"}, "Extra inputs"),
    ],
)
def test_invalid_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as raised:
        JdbcSinkConfig.model_validate({**BLOCK, **change})
    assert "s3cret" not in str(raised.value)


def test_an_address_without_a_port_gets_the_default_port() -> None:
    assert str(Address.of("jdbc:mysql://db/shop?sslMode=trust")) == "mysql://db:3306/shop"
    assert str(Address.of("jdbc:postgresql://[::1]:6000/shop")) == "postgresql://::1:6000/shop"
    assert "s3cret" not in repr(JdbcSinkConfig.model_validate(BLOCK))
