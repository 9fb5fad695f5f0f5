"""Mistakes in the dashboard block are refused before the server listens."""

from typing import Any

import pytest

from lakefeed.cli.run import dashboard_overrides
from lakefeed.config.base import validated
from lakefeed.errors import ConfigError
from lakefeed_dashboard.settings import Dashboard, is_loopback
from tests.support.pipeline_text import GOOD, Reader

HASH = "$argon2id$v=19$m=65536,t=3,p=4$SpI29fPNBr5AkxTMZs/+xw$WNXGRSegRe3qSnkEKsZBCBKmbZJJ0K3KQfOB9wVx3tQ"
USER = {"name": "anna", "role": "operator", "password_hash": HASH}
TOKEN = {"name": "prometheus", "token": "0123456789abcdefghijklmnop"}
TLS = {"certificate": "cert.pem", "key": "key.pem"}


def dashboard(**settings: Any) -> Dashboard:
    return validated(Dashboard, "dashboard", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "0.0.0.0"}, "requires a login"),
        ({"host": "::"}, "requires a login"),
        ({"host": "192.0.2.1", "tls": TLS}, "requires a login"),
        ({"host": "feeds.example", "users": [USER]}, "plain text"),
        ({"host": "0.0.0.0", "tokens": [TOKEN]}, "plain text"),
        ({"behind_proxy": True, "public_url": "https://x.example"}, "is public, so it requires a login"),
        ({"behind_proxy": True, "users": [USER]}, "public_url"),
        ({"users": [USER, USER]}, "two users have the name 'anna'"),
        ({"users": [{**USER, "password_hash": "secret-of-anna"}]}, "hash-password"),
        ({"users": [{**USER, "password_hash": HASH.replace("argon2id", "argon2i")}]}, "hash-password"),
        ({"users": [{**USER, "password_hash": HASH.replace("65536", "99999999")}]}, "1 GB"),
        ({"users": [{**USER, "role": "admin"}]}, "viewer"),
        ({"users": [{**USER, "name": "a\nb"}]}, "name"),
        ({"tokens": [{**TOKEN, "token": "short"}]}, "20 letters"),
        ({"tokens": [{**TOKEN, "token": "with a space in the middle of it"}]}, "without spaces"),
        ({"public_url": "https://x.example/path"}, "without a path"),
        ({"public_url": "ftp://x.example"}, "public URL"),
        ({"public_url": "https://user:pass@x.example"}, "public URL"),
        ({"host": "127.0.0.1:80"}, "without a port"),
        ({"port": 70000}, "port"),
        ({"session_hours": 0}, "session_hours"),
    ],
)
def test_unsafe_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        dashboard(**settings)
    assert "secret-of-anna" not in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"host": "::1"},
        {"host": "0.0.0.0", "users": [USER], "tls": TLS},
        {"host": "0.0.0.0", "tokens": [TOKEN], "behind_proxy": True, "public_url": "https://x.example"},
    ],
)
def test_safe_settings_are_accepted(settings: dict[str, Any]) -> None:
    found = dashboard(**settings)
    assert HASH not in repr(found)
    assert TOKEN["token"] not in repr(found)


def test_is_loopback_recognises_loopback_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST.")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, []),
        ("", []),
        ("9000", ["dashboard.port=9000"]),
        ("localhost", ["dashboard.host='localhost'"]),
        ("0.0.0.0:9000", ["dashboard.host='0.0.0.0'", "dashboard.port=9000"]),
        ("[::1]:9000", ["dashboard.host='[::1]'", "dashboard.port=9000"]),
        ("[::1]", ["dashboard.host='[::1]'"]),
        ("::1", ["dashboard.host='::1'"]),
    ],
)
def test_the_address_of_the_option_dashboard_is_parsed(text: str | None, found: list[str]) -> None:
    assert dashboard_overrides(text) == found


def test_the_option_dashboard_overrides_the_address_but_not_the_login(reading: Reader) -> None:
    with pytest.raises(ConfigError, match="not a port"):
        dashboard_overrides("localhost:http")
    with pytest.raises(ConfigError, match=r"taxi\.yaml --dashboard"):
        dashboard_overrides("taxi.yaml")

    def of(text: str, more: str = "") -> Dashboard | None:
        config, problems = reading(GOOD + more, overrides=dashboard_overrides(text))
        assert config is not None, problems
        return config.block(Dashboard)

    assert of("") is None
    assert of("::1") == dashboard(host="::1")
    _, problems = reading(overrides=dashboard_overrides("0.0.0.0:80"))
    assert "requires a login" in problems[0].what
    token = "tokens: [{name: prometheus, token: 0123456789abcdefghijklmnop}]"
    found = of("0.0.0.0:80", f"dashboard: {{port: 1, behind_proxy: true, public_url: 'https://x.example', {token}}}\n")
    assert found is not None
    assert (found.host, found.port, found.tokens[0].name) == ("0.0.0.0", 80, "prometheus")
