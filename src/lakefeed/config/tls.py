"""Translate the TLS parameters of a JDBC URL for Python's drivers, or refuse those that only Java's has.

PostgreSQL: pgjdbc's ``ssl``, ``sslmode`` and files, https://jdbc.postgresql.org/documentation/use/. MariaDB and MySQL,
both reached by MariaDB's driver: ``sslMode`` and ``serverSslCert``, https://mariadb.com/docs/connectors.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from lakefeed.config import trust
from lakefeed.config.addresses import PlainTextLogin
from lakefeed.config.connections import is_loopback
from lakefeed.errors import ConfigError

# Parameters that mean the same to Java's driver and to libpq.
_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslnegotiation")
_JAVA_ONLY = ("sslfactory", "sslfactoryarg", "sslhostnameverifier", "sslpasswordcallback", "socketfactory")
_POSTGRESQL_REQUIRES = ("require", "verify-ca", "verify-full")
_POSTGRESQL_MODES = ("disable", "allow", "prefer", *_POSTGRESQL_REQUIRES)
# What MariaDB's driver takes for sslMode, without signs and in small letters; MySQL's words among them.
_MODES = {
    **dict.fromkeys(("disable", "disabled", "0", "false"), "disable"),
    **dict.fromkeys(("trust", "required"), "trust"),
    "verifyca": "verify-ca",
    **dict.fromkeys(("verifyfull", "verifyidentity", "1", "true"), "verify-full"),
}
_JAVA_STORES = ("truststore", "keystore", "truststoretype", "keystoretype", "tlssockettype", "serversslcertpath")
# Of MySQL's own driver or of older ones: MariaDB's ignores them, and would connect as plain text.
_MEANINGLESS = [
    "ssl",
    "requiressl",
    "verifyservercertificate",
    "clientcertificatekeystoreurl",
    "trustcertificatekeystoreurl",
]


class JavaOnly(ConfigError):
    """Java's driver would use TLS in a way that Python's cannot."""

    @classmethod
    def of(cls, name: str, where: str, instead: str) -> JavaOnly:
        """Name a parameter that Python's driver does not have."""
        what = f"'{name}' is a way to use TLS that only Java knows: the database is not asked without Spark, since that"
        hint = f"write {instead} in the URL"
        return cls(f"{what} would be over another connection than the feed's", where=where, hint=hint)


def check(kind: str, options: Mapping[str, str]) -> None:
    """Refuse parameters of a URL that ask for TLS in a way that the JVM's driver would ignore."""
    lower = {key.lower(): value for key, value in options.items()}
    if kind == "postgresql":
        if lower.get("sslmode", "disable").lower() not in _POSTGRESQL_MODES:
            hint = f"sslmode is one of {', '.join(_POSTGRESQL_MODES)}"
            raise ConfigError(f"'{lower['sslmode']}' is no sslmode", hint=hint)
        return
    for name in _MEANINGLESS:
        if name in lower:
            what = f"'{name}' means nothing to the database's driver, which would connect as plain text"
            raise ConfigError(what, hint="write sslMode=verify-full")
    _mode(lower)


def is_required(kind: str, options: Mapping[str, str]) -> bool:
    """Return whether the JVM's driver connects with TLS or not at all.

    PostgreSQL's ``allow`` and ``prefer``, the default, connect as plain text where the server has no TLS, or where
    an attacker between the two says so.
    """
    lower = {key.lower(): value for key, value in options.items()}
    if kind != "postgresql":
        return _mode(lower) != "disable"
    mode = lower.get("sslmode", "").lower()
    return mode in _POSTGRESQL_REQUIRES if mode else _ssl_is_on(lower)


def plain_text_logins(key: str, url: str) -> Iterator[PlainTextLogin]:
    """Yield the login to a database on another machine whose URL does not require TLS; ``key`` is the URL's setting."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not is_loopback(parts.hostname) and not is_required(parts.scheme, options):
        mode = "sslmode" if parts.scheme == "postgresql" else "sslMode"
        why = "may go over the network as plain text, since the URL does not require TLS"
        yield PlainTextLogin(key, url, why, f"add the parameter {mode}=verify-full to the URL")


def _ssl_is_on(lower: Mapping[str, str]) -> bool:
    # ?ssl without a value is true for pgjdbc.
    return lower.get("ssl", "false").lower() in ("true", "")


def _mode(lower: Mapping[str, str]) -> str:
    """Return how MariaDB's driver uses TLS: disable, trust, verify-ca or verify-full."""
    if (given := lower.get("sslmode")) is not None:
        if mode := _MODES.get(given.lower().replace("-", "").replace("_", "")):
            return mode
        hint = "sslMode is disable, trust, verify-ca or verify-full"
        raise ConfigError(f"'{given}' is no sslMode that the database's driver knows", hint=hint)
    if lower.get("usessl", "false").lower() in ("false", "0"):
        return "disable"
    if lower.get("trustservercertificate", "false").lower() in ("", "1", "true"):
        return "trust"
    if lower.get("disablesslhostnameverification", "false").lower() in ("", "1", "true"):
        return "verify-ca"
    return "verify-full"


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


def mariadb_context(options: Mapping[str, str], *, where: str) -> ssl.SSLContext | None:
    """Build the TLS context for MariaDB or MySQL; None where Java's driver uses no TLS."""
    lower = {key.lower(): value for key, value in options.items()}
    mode = _mode(lower)
    if mode == "disable":
        return None
    for name in _JAVA_STORES:
        if name in lower:
            raise JavaOnly.of(name, where, "serverSslCert=/path/ca.pem")
    authority = lower.get("serversslcert", "")
    text, file = (authority, None) if "-----BEGIN" in authority else (None, authority.removeprefix("file:") or None)
    try:
        context = ssl.create_default_context(cafile=file, cadata=text) if authority else trust.client_context()
    except (OSError, ssl.SSLError) as error:
        what = f"the certificates cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(what, where=f"{where}, serverSslCert", hint="give a file in PEM") from None
    context.check_hostname = mode == "verify-full"
    if mode == "trust":
        context.verify_mode = ssl.CERT_NONE
    return context
