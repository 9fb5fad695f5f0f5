"""The block ``tls``, and the TLS parameters of PostgreSQL's URLs."""

import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from lakefeed.clients.http import ask
from lakefeed.clients.iceberg.catalogs import CatalogDatabase
from lakefeed.config import trust
from lakefeed.config.trust import Certificates, Tls, libpq_options, pgjdbc_properties
from lakefeed.errors import ConfigError, LakefeedError, Unreachable
from lakefeed_testing.schemas import HttpAnswer, serve_http
from tests.support.servers.authority import Authority, Signed
from tests.support.servers.tls_proxy import tls_proxy


@pytest.fixture(autouse=True)
def _nothing_declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in trust.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    trust.forget()
    yield
    trust.forget()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Signed:
    return authority.sign("own")


def test_declared_authorities_are_added_to_the_authorities_of_the_system(authority: Authority, tmp_path: Path) -> None:
    before = len(trust.client_context().get_ca_certs())
    trust.declare(Tls(ca_file=authority.file))
    other = Authority(tmp_path, "another pipeline's")
    trust.declare(Tls(ca_file=other.file))
    assert len(trust.client_context().get_ca_certs()) == before + 2
    bundle = Path(trust.authorities_file() or "").read_text()
    assert authority.file.read_text().strip() in bundle
    assert bundle.count("BEGIN CERTIFICATE") >= before + 2
    assert len(trust.client_context(authority.file.read_text()).get_ca_certs()) == 1


def test_certificates_are_read_from_the_files_that_the_environment_names(
    authority: Authority, own: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trust.current() == Certificates()
    assert trust.authorities_file() is None
    monkeypatch.setenv("LAKEFEED_CA_FILE", str(authority.file))
    monkeypatch.setenv("LAKEFEED_CLIENT_CERTIFICATE", str(own.certificate))
    monkeypatch.setenv("LAKEFEED_CLIENT_KEY", str(own.key))
    assert trust.current().authorities == authority.file.read_text().strip()
    assert trust.own_files() == (own.certificate, own.key)
    assert "PRIVATE" not in repr(trust.current())


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_private_key_is_converted_for_java(own: Signed, tmp_path: Path, form: PrivateFormat) -> None:
    key = load_pem_private_key(own.key.read_bytes(), None)
    file = tmp_path / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    found = Certificates.read(Tls(certificate=own.certificate, key=file)).key.get_secret_value()
    assert found.startswith("-----BEGIN PRIVATE KEY-----")
    same = load_pem_private_key(found.encode(), None)
    numbers = [each.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) for each in (same, key)]
    assert numbers[0] == numbers[1]


def test_an_unusable_file_is_refused(authority: Authority, own: Signed, tmp_path: Path) -> None:
    empty, broken, locked = (tmp_path / name for name in ("empty", "broken", "locked"))
    empty.touch()
    broken.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    key = load_pem_private_key(own.key.read_bytes(), None)
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    stranger = authority.sign("stranger")
    cases = {
        "the file cannot be read": Tls(ca_file=tmp_path / "missing"),
        "has no certificate": Tls(ca_file=empty),
        "a certificate that cannot be read": Tls(ca_file=broken),
        "has a passphrase": Tls(certificate=own.certificate, key=locked),
        "the key does not belong to the certificate": Tls(certificate=own.certificate, key=stranger.key),
        "has no private key": Tls(certificate=own.certificate, key=own.certificate),
    }
    for message, block in cases.items():
        with pytest.raises(ConfigError, match=message) as refused:
            Certificates.read(block)
        assert refused.value.where is not None
        assert refused.value.where.startswith("tls.")


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(ValueError, match="belong together"):
        Tls(certificate=Path("own.pem"))


def test_postgresql_verifies_with_the_declared_authorities(authority: Authority) -> None:
    assert pgjdbc_properties({"sslmode": "verify-full"}) == {}
    trust.declare(Tls(ca_file=authority.file))
    assert pgjdbc_properties({"sslmode": "verify-full"}) == {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}
    assert pgjdbc_properties({"ssl": "true"}) != {}
    assert libpq_options({"sslmode": "verify-full"}, where="db")["sslrootcert"] == trust.authorities_file()
    # The parameters of a URL override the declared authorities; a URL that turns verification off keeps it off.
    for options in ({"sslmode": "verify-full", "sslrootcert": "/own.pem"}, {"sslmode": "require"}, {}):
        assert pgjdbc_properties(options) == {}
        assert libpq_options(options, where="db").get("sslrootcert") in (None, "/own.pem")


def test_a_failed_tls_connection_is_explained() -> None:
    def verification(code: int) -> ssl.SSLCertVerificationError:
        error = ssl.SSLCertVerificationError(1, "failed")
        error.verify_code, error.verify_message = code, "reason"
        return error

    plain = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    plain.reason = "WRONG_VERSION_NUMBER"
    for error, message in (
        (verification(20), "signed by an authority that is not trusted"),
        (verification(62), "is for another host"),
        (verification(10), "has expired"),
        (plain, "does not use TLS at this address"),
    ):
        found = trust.explain(error, server="the store", where="https://store")
        assert message in found.what
        assert found.hint


def test_a_failed_tls_connection_of_libpq_is_explained() -> None:
    failed = 'connection to server at "127.0.0.1", port 5432 failed: '
    for text, message in (
        ("SSL error: certificate verify failed", "signed by an authority that is not trusted"),
        ('server certificate for "a" does not match host name "b"', "is for another host"),
        ("SSL error: tlsv13 alert certificate required", "requests a client certificate"),
        ("SSL error: tlsv1 alert unknown ca", "requests a client certificate"),
        ("FATAL:  connection requires a valid client certificate", "requests a client certificate"),
    ):
        found = trust.explain_libpq(failed + text, server="the database", where="b:5432")
        assert found is not None
        assert message in found.what
    assert trust.explain_libpq(f"{failed}Connection refused", server="the database", where="b:5432") is None


@pytest.mark.parametrize("kind", ["none", "stranger", "expired"])
def test_a_client_certificate_that_the_server_refuses_is_explained(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    stranger = Authority(tmp_path / "stranger", "a stranger")
    shown = {"stranger": stranger.sign("it"), "expired": authority.sign("old", days=-1)}.get(kind)
    files = {} if shown is None else {"certificate": shown.certificate, "key": shown.key}
    trust.declare(Tls(ca_file=authority.file, **files))
    context = authority.sign("server", "localhost").server_context(clients=authority.file)
    with (
        serve_http(lambda request: HttpAnswer()) as address,
        tls_proxy(int(address.rpartition(":")[2]), context) as proxy,
        pytest.raises(LakefeedError) as refused,
    ):
        ask(f"https://localhost:{proxy.port}/", server="the registry", headers={})
    # The message varies: the server may close the connection before the client reads its alert.
    assert re.search("requests a client certificate|has closed the TLS connection|does not answer", refused.value.what)
    if not isinstance(refused.value, Unreachable):
        assert "tls.certificate and tls.key" in str(refused.value.hint)


def options_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url.removeprefix("jdbc:")).query, keep_blank_values=True))


@pytest.mark.parametrize(
    ("parameters", "required"),
    [
        ("", False),
        *((f"sslmode={mode}", False) for mode in ("disable", "allow", "prefer")),
        *((f"sslmode={mode}", True) for mode in ("require", "verify-ca", "verify-full")),
        ("ssl", True),
        ("ssl=true", True),
        ("ssl=false", False),
        ("ssl=true&sslmode=prefer", False),
    ],
)
def test_sslmode_decides_whether_a_connection_requires_tls(parameters: str, required: bool) -> None:
    assert trust.is_required(options_of(f"jdbc:postgresql://h/d?{parameters}")) is required


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ("ssl=true", {"sslmode": "verify-full"}),
        ("ssl", {"sslmode": "verify-full"}),
        ("ssl=false", {}),
        ("ssl=true&sslmode=require", {"sslmode": "require"}),
        ("sslmode=verify-ca&sslrootcert=/ca.pem", {"sslmode": "verify-ca", "sslrootcert": "/ca.pem"}),
        ("connectTimeout=3", {}),
    ],
)
def test_libpq_gets_the_tls_parameters_of_the_url(parameters: str, options: dict[str, str]) -> None:
    url = f"jdbc:postgresql://h/d?{parameters}"
    assert trust.libpq_options(options_of(url), where="h") == options
    assert CatalogDatabase.of(url).options == options


@pytest.mark.parametrize("parameter", ["sslfactory=a.B", "sslhostnameverifier=a.B", "sslkey=/client.pk8"])
def test_a_parameter_of_java_only_is_refused(parameter: str) -> None:
    with pytest.raises(trust.JavaOnly, match="only Java's driver supports"):
        CatalogDatabase.of(f"jdbc:postgresql://h/d?sslmode=verify-full&{parameter}")
