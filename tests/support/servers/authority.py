"""A private certificate authority for tests, and the certificates that it signs."""

import datetime as dt
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NO_USAGE = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    ),
    False,
)
_CA_USAGE = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **_NO_USAGE)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass(frozen=True)
class Signed:
    """A certificate and its key as PEM files; ``both`` has the key, the certificate and the authority's certificate."""

    certificate: Path
    key: Path
    both: Path

    def server_context(self, *, clients: Path | None = None) -> ssl.SSLContext:
        """Return a server's TLS context; with ``clients``, clients must have certificates of that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class Authority:
    """A certificate authority with its files in one folder."""

    def __init__(self, folder: Path, name: str = "lakefeed tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, _named(name)
        self._key = rsa.generate_private_key(65537, 2048)
        self.file = folder / "ca.pem"
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def sign(self, name: str, *hosts: str, days: float = 1) -> Signed:
        """Sign a certificate for hosts, or for a client of this name; negative ``days`` give an expired certificate."""
        key = rsa.generate_private_key(65537, 2048)
        names = [x509.DNSName(host) if not host[0].isdigit() else x509.IPAddress(ip_address(host)) for host in hosts]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_named(name), key.public_key(), days=days).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        paths = Signed(*(self._folder / f"{name}{ending}" for ending in (".pem", ".key", ".both.pem")))
        paths.certificate.write_bytes(certificate)
        paths.both.write_bytes(private + certificate + self.file.read_bytes())
        paths.key.write_bytes(private)
        paths.key.chmod(0o600)
        return paths

    def _builder(self, name: x509.Name, key: rsa.RSAPublicKey, *, days: float = 1) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=2))
            .not_valid_after(now + dt.timedelta(days=days))
            # Python 3.13 refuses certificates without these identifiers, and authorities without a usage.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
