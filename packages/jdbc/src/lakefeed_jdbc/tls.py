"""Make Python's client for MariaDB and MySQL use TLS as MariaDB's Java driver does with the same JDBC URL.

https://mariadb.com/docs/connectors describes these parameters; ``lakefeed.config.tls`` handles PostgreSQL's.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping

from lakefeed.config import tls, trust
from lakefeed.config.addresses import PlainTextLogin, without_required_tls
from lakefeed.config.tls import JavaOnly
from lakefeed.errors import ConfigError

_MODES = {
    **dict.fromkeys(("disable", "disabled", "0", "false"), "disable"),
    **dict.fromkeys(("trust", "required"), "trust"),
    "verifyca": "verify-ca",
    **dict.fromkeys(("verifyfull", "verifyidentity", "1", "true"), "verify-full"),
}
"""MariaDB's driver accepts these values of sslMode, MySQL's values included, in any case and punctuation."""
_JAVA_STORES = ("truststore", "keystore", "truststoretype", "keystoretype", "tlssockettype", "serversslcertpath")
_IGNORED: tuple[str, ...] = ("ssl", "requiressl", "verifyservercertificate")
_IGNORED += ("clientcertificatekeystoreurl", "trustcertificatekeystoreurl")
"""TLS parameters of other or old drivers. MariaDB's driver ignores them, so it would connect without TLS."""


def check(kind: str, options: Mapping[str, str]) -> None:
    """Refuse URL parameters that request TLS, but that the JVM's driver would ignore."""
    lower = {key.lower(): value for key, value in options.items()}
    if kind == "postgresql":
        if lower.get("sslmode", "disable").lower() not in tls.MODES:
            hint = f"sslmode is one of {', '.join(tls.MODES)}"
            raise ConfigError(f"'{lower['sslmode']}' is not an sslmode", hint=hint)
        return
    for name in _IGNORED:
        if name in lower:
            what = f"the database's driver ignores '{name}', and would connect as plain text"
            raise ConfigError(what, hint="write sslMode=verify-full")
    _mode(lower)


def plain_text_logins(url: str, kind: str, host: str, options: Mapping[str, str]) -> Iterator[PlainTextLogin]:
    """Yield the login if its database is on another machine and the URL does not require TLS."""
    if kind == "postgresql":
        return tls.plain_text_logins("url", url)
    is_required = _mode({key.lower(): value for key, value in options.items()}) != "disable"
    return iter(()) if is_required else without_required_tls("url", url, host, parameter="sslMode")


def _mode(lower: Mapping[str, str]) -> str:
    """Return the mode that MariaDB's driver uses: disable, trust, verify-ca or verify-full."""
    if (given := lower.get("sslmode")) is not None:
        if mode := _MODES.get(given.lower().replace("-", "").replace("_", "")):
            return mode
        hint = "sslMode is disable, trust, verify-ca or verify-full"
        raise ConfigError(f"'{given}' is not an sslMode that the database's driver knows", hint=hint)
    if lower.get("usessl", "false").lower() in ("false", "0"):
        return "disable"
    if lower.get("trustservercertificate", "false").lower() in ("", "1", "true"):
        return "trust"
    if lower.get("disablesslhostnameverification", "false").lower() in ("", "1", "true"):
        return "verify-ca"
    return "verify-full"


def mariadb_context(options: Mapping[str, str], *, where: str) -> ssl.SSLContext | None:
    """Return the TLS context for MariaDB or MySQL; None if the Java driver would use no TLS."""
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
        raise ConfigError(
            what, where=f"{where}, serverSslCert", hint="name a PEM file that this user may read"
        ) from None
    context.check_hostname = mode == "verify-full"
    if mode == "trust":
        context.verify_mode = ssl.CERT_NONE
    return context
