"""Translates the TLS parameters of PostgreSQL's JDBC URLs for libpq, and refuses parameters that only pgjdbc has.

pgjdbc is PostgreSQL's Java driver; its parameters: https://jdbc.postgresql.org/documentation/use/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from lakefeed.config import trust
from lakefeed.config.addresses import PlainTextLogin, without_required_tls
from lakefeed.errors import ConfigError

# These parameters mean the same to pgjdbc and to libpq.
_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslnegotiation")
_JAVA_ONLY = ("sslfactory", "sslfactoryarg", "sslhostnameverifier", "sslpasswordcallback", "socketfactory")
_REQUIRES = ("require", "verify-ca", "verify-full")
MODES = ("disable", "allow", "prefer", *_REQUIRES)


class JavaOnly(ConfigError):
    """A URL configures TLS in a way that only Java's driver supports."""

    @classmethod
    def of(cls, name: str, where: str, instead: str) -> JavaOnly:
        what = f"only Java's driver supports '{name}', so lakefeed cannot connect to the database without Spark"
        return cls(what, where=where, hint=f"write {instead} in the URL")


def is_required(options: Mapping[str, str]) -> bool:
    """Return whether pgjdbc refuses connections without TLS.

    With ``allow`` and the default ``prefer``, pgjdbc connects as plain text if the server, or an attacker on the
    network, says that there is no TLS.
    """
    lower = {key.lower(): value for key, value in options.items()}
    mode = lower.get("sslmode", "").lower()
    return mode in _REQUIRES if mode else _ssl_is_on(lower)


def plain_text_logins(key: str, url: str) -> Iterator[PlainTextLogin]:
    """Yield the login to a database on another machine if its URL, the setting ``key``, does not require TLS."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    if not is_required(dict(parse_qsl(parts.query, keep_blank_values=True))):
        yield from without_required_tls(key, url, parts.hostname, parameter="sslmode")


def _ssl_is_on(lower: Mapping[str, str]) -> bool:
    # pgjdbc reads ?ssl without a value as true.
    return lower.get("ssl", "false").lower() in ("true", "")


def libpq_options(options: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Translate the TLS parameters of a PostgreSQL URL into libpq's options."""
    lower = {key.lower(): value for key, value in options.items()}
    for name in _JAVA_ONLY:
        if name in lower:
            raise JavaOnly.of(name, where, "sslmode=verify-full and sslrootcert=/path/ca.pem")
    found = {name: lower[name] for name in _LIBPQ if name in lower}
    if _ssl_is_on(lower) and "sslmode" not in found:
        found["sslmode"] = "verify-full"
    if found.get("sslmode", "").startswith("verify") and "sslrootcert" not in found:
        if (authorities := trust.authorities_file()) is not None:
            found["sslrootcert"] = authorities
        if (own := trust.own_files()) is not None and "sslcert" not in found:
            found |= {"sslcert": str(own[0]), "sslkey": str(own[1])}
    if found.get("sslkey", "").lower().endswith((".pk8", ".der", ".p12", ".pfx")):
        raise JavaOnly.of("sslkey in this format", where, "sslkey=/path/client.key, a file in PEM,")
    return found


def pgjdbc_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which pgjdbc trusts the JVM's authorities; none if the URL names authorities."""
    lower = {key.lower(): value for key, value in options.items()}
    verifies = lower.get("sslmode", "").startswith("verify") or ("sslmode" not in lower and _ssl_is_on(lower))
    names_own = any(name in lower for name in ("sslrootcert", "sslcert", *_JAVA_ONLY))
    if not verifies or names_own or trust.current() == trust.Certificates():
        return {}
    # By default pgjdbc reads only ~/.postgresql/root.crt.
    return {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}
