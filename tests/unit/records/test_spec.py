import pytest

from lakefeed.errors import ConfigError
from lakefeed.records.spec import ConfluentAvro, registry_address


def test_an_address_with_credentials_is_refused_without_showing_them() -> None:
    with pytest.raises(ConfigError) as refused:
        ConfluentAvro(registry_url="http://me:hunter2@127.0.0.1:8081", reader_schema="{}")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "ftp://host", "http://", "localhost:8081"])
def test_an_address_without_http_or_host_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http://"):
        registry_address(url)


def test_a_slash_at_the_end_of_an_address_is_removed() -> None:
    assert registry_address("http://host:1/apis/ccompat/v7/") == "http://host:1/apis/ccompat/v7"
