"""The block ``tls``: authorities to trust besides the system's, and the certificate for servers that request one.

The clients of a JVM share one trust store, so a pipeline's block applies to the whole process, in Python and in Java:
docs/secure-connections.md.
"""

from __future__ import annotations

import atexit
import base64
import os
import re
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import SecretStr

from lakefeed.config import trust
from lakefeed.config.addresses import PlainTextLogin, without_required_tls
from lakefeed.config.base import ConfigProblem, Model
from lakefeed.errors import ConfigError, LakefeedError

VARIABLES = {
    "ca_file": "LAKEFEED_CA_FILE",
    "certificate": "LAKEFEED_CLIENT_CERTIFICATE",
    "key": "LAKEFEED_CLIENT_KEY",
}
"""The environment variables of the files, by setting."""

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(r"-----BEGIN ((?:[A-Z]+ )*)PRIVATE KEY-----(.*?)-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
# Parts of error texts about the client's certificate: OpenSSL's names of TLS alerts, and PostgreSQL's message.
_CERTIFICATE_REFUSED = re.compile(
    "certificate required|handshake failure|bad certificate|alert (unknown ca|access denied)"
    "|alert (unsupported )?certificate|requires a valid client certificate"
)
# The prefix that turns an RSA key in PKCS #1 into PKCS #8 (RFC 5208): version 0, and the algorithm rsaEncryption.
_RSA = bytes.fromhex("020100300d06092a864886f70d0101010500")


class Tls(Model):
    """Certificates for all connections of a pipeline, in PEM files."""

    ca_file: Path | None = None
    """File with certificates of authorities to trust besides the system's and Java's. Default: LAKEFEED_CA_FILE."""
    certificate: Path | None = None
    """File with the certificate for servers that request one (mutual TLS), and the intermediate certificates. Default:
    LAKEFEED_CLIENT_CERTIFICATE."""
    key: Path | None = None
    """File with the certificate's private key, without a passphrase. Default: LAKEFEED_CLIENT_KEY."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if (self.certificate is None) != (self.key is None):
            yield ConfigProblem("certificate and key belong together", key="certificate", hint="give both or none")

    def completed(self, environment: Mapping[str, str]) -> Tls:
        """Take the files that this block does not name from the environment."""
        named = {name: Path(found) for name, variable in VARIABLES.items() if (found := environment.get(variable))}
        if self.certificate is not None:
            named = {name: path for name, path in named.items() if name == "ca_file"}
        return Tls.model_validate(named | {name: value for name, value in self if value is not None})


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """The contents of the PEM files; empty without a file. The key is in PKCS #8, as Java requires."""

    authorities: str = ""
    certificate: str = ""
    key: SecretStr = field(default_factory=lambda: SecretStr(""))

    @classmethod
    def read(cls, tls: Tls) -> Certificates:
        """Read the files; raise a ConfigError for an unusable file."""
        certificate = key = ""
        if tls.certificate is not None and tls.key is not None:
            certificate, key = certificates_in(tls.certificate, "tls.certificate"), _key_in(tls.key)
            try:
                ssl.create_default_context().load_cert_chain(tls.certificate, tls.key, password=lambda: "")
            except ssl.SSLError:
                where, hint = (
                    f"tls.certificate: {tls.certificate}, tls.key: {tls.key}",
                    "name the certificate's own key",
                )
                raise ConfigError("the key does not belong to the certificate", where=where, hint=hint) from None
        authorities = certificates_in(tls.ca_file, "tls.ca_file") if tls.ca_file is not None else ""
        return cls(authorities=authorities, certificate=certificate, key=SecretStr(key))


class _Declared:
    """The blocks ``tls`` of this process's pipelines."""

    lock = threading.Lock()
    tls = Tls()
    authorities: tuple[Path, ...] = ()
    files: ClassVar[dict[str, str]] = {}
    """The files with authorities that this process has written, by the declared authorities that a file contains."""


def declare(tls: Tls) -> None:
    """Make this process trust a pipeline's authorities and present its certificate; reads no file yet.

    The authorities of other pipelines stay trusted; the certificate replaces an earlier pipeline's certificate.
    """
    with _Declared.lock:
        if tls.ca_file is not None:
            _Declared.authorities = tuple(dict.fromkeys([*_Declared.authorities, tls.ca_file]))
        if tls.certificate is not None:
            _Declared.tls = tls


def forget() -> None:
    """Drop the blocks that pipelines have declared, so that only the environment's files count."""
    with _Declared.lock:
        _Declared.tls, _Declared.authorities = Tls(), ()


def current() -> Certificates:
    """Return the authorities that this process trusts besides the system's, and this process's certificate and key.

    Raises:
        ConfigError: a file cannot be read, or has no certificate or key; its ``where`` names the setting.
    """
    with _Declared.lock:
        tls, declared = _Declared.tls.completed(os.environ), _Declared.authorities
    environment = os.environ.get(VARIABLES["ca_file"])
    files = dict.fromkeys([*declared, *([Path(environment)] if environment and not declared else [])])
    found = Certificates.read(tls.model_copy(update={"ca_file": None}))
    texts = [certificates_in(file, "tls.ca_file") for file in files]
    return Certificates(authorities="\n".join(texts), certificate=found.certificate, key=found.key)


def client_context(only: str | None = None) -> ssl.SSLContext:
    """Return the TLS context for a client of this process.

    Args:
        only: certificates (PEM) of authorities to trust instead of the system's and the declared ones.
    """
    context = ssl.create_default_context(cadata=only)
    if only is None and (declared := current().authorities):
        context.load_verify_locations(cadata=declared)
    if (own := own_files()) is not None:
        context.load_cert_chain(*own)
    return context


def authorities_file() -> str | None:
    """Return a file with the declared and the system's authorities; None if no authorities are declared.

    The file is deleted when this process ends.
    """
    if not (declared := current().authorities):
        return None
    with _Declared.lock:
        if declared not in _Declared.files:
            descriptor, name = tempfile.mkstemp(prefix="lakefeed-authorities-", suffix=".pem")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{declared}\n{system_authorities()}\n")
            atexit.register(Path(name).unlink, missing_ok=True)
            _Declared.files[declared] = name
        return _Declared.files[declared]


def own_files() -> tuple[Path, Path] | None:
    """Return the files of the certificate and key that this process presents; None without a certificate."""
    with _Declared.lock:
        tls = _Declared.tls.completed(os.environ)
    return None if tls.certificate is None or tls.key is None else (tls.certificate, tls.key)


def system_authorities() -> str:
    """Return the system's authorities as PEM, for clients that accept only one list of authorities."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.cafile)] if paths.cafile else sorted(Path(paths.capath or "/nowhere").glob("*.0"))
    return "\n".join(each for file in files for each in _CERTIFICATE.findall(file.read_text("utf-8", "replace")))


def certificates_in(file: Path, setting: str) -> str:
    """Return the certificates in a file, without the private keys that the file may have, too."""
    where, hint = f"{setting}: {file}", "name a file with -----BEGIN CERTIFICATE-----"
    text = "\n".join(_CERTIFICATE.findall(_text(file, setting)))
    if not text:
        raise ConfigError("the file has no certificate (PEM)", where=where, hint=hint)
    try:
        ssl.create_default_context().load_verify_locations(cadata=text)
    except ssl.SSLError:
        hint = f"openssl x509 -in {file} -text shows the mistake"
        raise ConfigError("the file has a certificate that cannot be read", where=where, hint=hint) from None
    return text


def _key_in(file: Path) -> str:
    text, where = _text(file, "tls.key"), f"tls.key: {file}"
    if (found := _KEY.search(text)) is None:
        hint = "name a file with -----BEGIN PRIVATE KEY-----"
        raise ConfigError("the file has no private key (PEM)", where=where, hint=hint)
    kind, body = found[1].strip(), found[2]
    if not kind:
        return found[0]
    if kind == "RSA" and "ENCRYPTED" not in body:
        return _pkcs8(base64.b64decode("".join(body.split())))
    hint = f"openssl pkcs8 -topk8 -nocrypt -in {file} -out {file.with_suffix('.pk8')}"
    what = "Java cannot read the private key: it has a passphrase, or is not in PKCS #8"
    raise ConfigError(what, where=where, hint=hint)


def _pkcs8(rsa: bytes) -> str:
    """Convert an RSA key in PKCS #1, the default of cert-manager, to PKCS #8."""
    octets = _RSA + b"\x04" + _length(len(rsa)) + rsa
    wrapped = base64.encodebytes(b"\x30" + _length(len(octets)) + octets).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{wrapped}-----END PRIVATE KEY-----\n"


def _length(count: int) -> bytes:
    if count < 0x80:
        return bytes([count])
    octets = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(octets)]) + octets


def _text(file: Path, setting: str) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as error:
        what = f"the file cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        raise ConfigError(what, where=f"{setting}: {file}", hint="name a PEM file that this user may read") from None


def explain(error: ssl.SSLError, *, server: str, where: str, setting: str = "tls.ca_file") -> LakefeedError:
    """Explain why a TLS connection failed; the hint names the setting that helps."""
    verify_code = getattr(error, "verify_code", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        if verify_code in (62, 64):  # OpenSSL's codes for a host name or an address that is not in the certificate.
            what, hint = (
                "is for another host",
                "use a name that the certificate has, or request a certificate for this one",
            )
        elif verify_code in (9, 10):
            what, hint = "has expired or is not valid yet", "renew the certificate, or correct this machine's clock"
        else:
            what = "is signed by an authority that is not trusted"
            hint = f"set {setting} to the certificate (PEM) of the authority that signed it"
        return ConfigError(f"the certificate of {server} {what}: {error.verify_message}", where=where, hint=hint)
    reason = (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
    if _CERTIFICATE_REFUSED.search(reason):
        what = f"{server} requests a client certificate and has refused this client: {reason}"
        hint = "set tls.certificate and tls.key to a certificate that the server accepts, and its key"
    elif "eof occurred" in reason:
        # A server that refuses the client's certificate may close the connection before the client reads its alert.
        what = f"{server} has closed the TLS connection"
        hint = "look into the server's log: it may refuse the client's certificate, tls.certificate and tls.key"
    elif "wrong version number" in reason or "record layer failure" in reason:
        what, hint = f"{server} does not use TLS at this address", "write http://, or the port for TLS"
    else:
        what, hint = f"no TLS connection to {server}: {reason}", "look into the server's log for the cause"
    return ConfigError(what, where=where, hint=hint)


def explain_libpq(text: str, *, server: str, where: str) -> LakefeedError | None:
    """Explain why a TLS connection of libpq failed; return None for a message that is not about TLS."""
    if "certificate verify failed" in text:
        code, why = 20, "certificate verify failed"
    elif found := re.search(r"server certificate for .* does not match host name .*", text):
        code, why = 62, found[0]
    elif refused := _CERTIFICATE_REFUSED.search(text):
        return explain(ssl.SSLError(1, refused[0]), server=server, where=where)
    else:
        return None
    error = ssl.SSLCertVerificationError(1, why)
    error.verify_code, error.verify_message = code, why
    return explain(error, server=server, where=where, setting="tls.ca_file, or sslrootcert in the URL")


# These parameters mean the same to pgjdbc and to libpq.
_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslnegotiation")
_JAVA_ONLY = ("sslfactory", "sslfactoryarg", "sslhostnameverifier", "sslpasswordcallback", "socketfactory")
_REQUIRES = ("require", "verify-ca", "verify-full")
MODES = ("disable", "allow", "prefer", *_REQUIRES)


class JavaOnly(ConfigError):
    """A URL has TLS parameters that only Java's driver supports."""

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
    """Return the properties that make pgjdbc trust the JVM's authorities; none if the URL names authorities itself."""
    lower = {key.lower(): value for key, value in options.items()}
    verifies = lower.get("sslmode", "").startswith("verify") or ("sslmode" not in lower and _ssl_is_on(lower))
    names_own = any(name in lower for name in ("sslrootcert", "sslcert", *_JAVA_ONLY))
    if not verifies or names_own or trust.current() == trust.Certificates():
        return {}
    # By default pgjdbc reads only ~/.postgresql/root.crt.
    return {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}
