"""How MariaDB's driver for Java, which reaches MySQL too, uses TLS by the parameters of a URL; the same for Python's.

``sslMode`` and ``serverSslCert``: https://mariadb.com/docs/connectors. PostgreSQL's are in ``lakefeed.config.tls``.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping

from lakefeed.config import tls, trust
from lakefeed.config.addresses import PlainTextLogin, without_required_tls
from lakefeed.config.tls import JavaOnly
from lakefeed.errors import ConfigError

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


def check(kind: str, options: Mapping[str, str]) -> None:
    """Refuse parameters of a URL that ask for TLS in a way that the JVM's driver would ignore."""
    lower = {key.lower(): value for key, value in options.items()}
    if kind == "postgresql":
        if lower.get("sslmode", "disable").lower() not in tls.MODES:
            hint = f"sslmode is one of {', '.join(tls.MODES)}"
            raise ConfigError(f"'{lower['sslmode']}' is no sslmode", hint=hint)
        return
    for name in _MEANINGLESS:
        if name in lower:
            what = f"'{name}' means nothing to the database's driver, which would connect as plain text"
            raise ConfigError(what, hint="write sslMode=verify-full")
    _mode(lower)


def plain_text_logins(url: str, kind: str, host: str, options: Mapping[str, str]) -> Iterator[PlainTextLogin]:
    """Yield the login to a database on another machine whose URL does not require TLS."""
    if kind == "postgresql":
        return tls.plain_text_logins("url", url)
    is_required = _mode({key.lower(): value for key, value in options.items()}) != "disable"
    return iter(()) if is_required else without_required_tls("url", url, host, parameter="sslMode")


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
