"""Translate the TLS parameters of PostgreSQL's JDBC URLs for libpq, or refuse those that only Java's driver has.

pgjdbc's ``ssl``, ``sslmode`` and files: https://jdbc.postgresql.org/documentation/use/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from lakefeed.config import trust
from lakefeed.config.addresses import PlainTextLogin, without_required_tls
from lakefeed.errors import ConfigError

# Parameters that mean the same to Java's driver and to libpq.
_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslnegotiation")
_JAVA_ONLY = ("sslfactory", "sslfactoryarg", "sslhostnameverifier", "sslpasswordcallback", "socketfactory")
_REQUIRES = ("require", "verify-ca", "verify-full")
MODES = ("disable", "allow", "prefer", *_REQUIRES)
"""The values of sslmode."""


class JavaOnly(ConfigError):
    """Java's driver would use TLS in a way that Python's cannot."""

    @classmethod
    def of(cls, name: str, where: str, instead: str) -> JavaOnly:
        """Name a parameter that Python's driver does not have."""
        what = f"'{name}' is a way to use TLS that only Java knows: the database is not asked without Spark, since that"
        hint = f"write {instead} in the URL"
        return cls(f"{what} would be over another connection than the feed's", where=where, hint=hint)


def is_required(options: Mapping[str, str]) -> bool:
    """Return whether the JVM's driver connects with TLS or not at all.

    ``allow`` and ``prefer``, the default, connect as plain text where the server has no TLS, or where an attacker
    between the two says so.
    """
    lower = {key.lower(): value for key, value in options.items()}
    mode = lower.get("sslmode", "").lower()
    return mode in _REQUIRES if mode else _ssl_is_on(lower)


def plain_text_logins(key: str, url: str) -> Iterator[PlainTextLogin]:
    """Yield the login to a database on another machine whose URL does not require TLS; ``key`` is the URL's setting."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    if not is_required(dict(parse_qsl(parts.query, keep_blank_values=True))):
        yield from without_required_tls(key, url, parts.hostname, parameter="sslmode")


def _ssl_is_on(lower: Mapping[str, str]) -> bool:
    # ?ssl without a value is true for pgjdbc.
    return lower.get("ssl", "false").lower() in ("true", "")


def libpq_options(options: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Return the TLS parameters of a URL of PostgreSQL, for libpq."""
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
        raise JavaOnly.of("sslkey", where, "sslkey=/path/client.key in PEM, which both read")
    return found


def pgjdbc_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return what makes PostgreSQL's driver for Java verify with the JVM's authorities, where the URL names none."""
    lower = {key.lower(): value for key, value in options.items()}
    verifies = lower.get("sslmode", "").startswith("verify") or ("sslmode" not in lower and _ssl_is_on(lower))
    names_own = any(name in lower for name in ("sslrootcert", "sslcert", *_JAVA_ONLY))
    if not verifies or names_own or trust.current() == trust.Certificates():
        return {}
    # By itself it reads ~/.postgresql/root.crt, and no other file.
    return {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}
