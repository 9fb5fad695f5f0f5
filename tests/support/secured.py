"""Run all servers of a feed behind TLS with a private authority, and write pipelines that reach them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from lakefeed_local.stack import Endpoints
from tests.support.servers.authority import Authority, Signed
from tests.support.servers.postgresql import UNPRIVILEGED, PostgreSQL
from tests.support.servers.search import Gate, SearchServer, gate
from tests.support.servers.secured_kafka import PASSWORD, USER, SecuredKafka, secured_kafka
from tests.support.servers.tls_proxy import TlsProxy, tls_proxy
from tests.support.servers.tokens import TokenServer, token_server


@dataclass(frozen=True, kw_only=True)
class Secured:
    """The running servers, and the files of the authority that has signed their certificates."""

    folder: Path
    authority: Authority
    stranger: Authority
    tokens: TokenServer
    kafka: SecuredKafka
    registry: str
    registry_proxy: TlsProxy
    s3: str
    stack: Endpoints
    database: PostgreSQL
    search: SearchServer
    gate: Gate
    misnamed_s3: str
    listener: str
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a user: passwords, and the servers' addresses."""
        return {
            "LAKEFEED_CA_FILE": str(self.authority.file),
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.servers("oauth"),
            "KAFKA_OAUTH_TOKEN_URL": self.tokens.token_url,
            "KAFKA_OAUTH_CLIENT_ID": "lakefeed",
            "KAFKA_OAUTH_CLIENT_SECRET": self.tokens.clients["lakefeed"],
            "SCHEMA_REGISTRY_URL": self.registry,
            "SCHEMA_REGISTRY_TOKEN_URL": self.tokens.token_url,
            "SCHEMA_REGISTRY_CLIENT_ID": "lakefeed",
            "SCHEMA_REGISTRY_CLIENT_SECRET": self.tokens.clients["lakefeed"],
            "AWS_ENDPOINT_URL_S3": self.s3,
            "AWS_REGION": self.stack.region,
            "AWS_ACCESS_KEY_ID": self.stack.access_key,
            "AWS_SECRET_ACCESS_KEY": self.stack.secret_key.get_secret_value(),
            **self.passwords,
        }

    @property
    def passwords(self) -> dict[str, str]:
        return {
            "BROKER_PASSWORD": PASSWORD,
            "REGISTRY_SECRET": self.tokens.clients["lakefeed"],
            "DATABASE_PASSWORD": self.database.password,
            "SEARCH_PASSWORD": self.gate.password,
        }

    def pipeline(self, topic: str, name: str, *, tls: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return a pipeline from the topic to Iceberg, PostgreSQL and the search server."""
        database = f"{self.database.jdbc_url.replace('127.0.0.1', 'localhost')}?sslmode=verify-full"
        registry = {
            "url": self.registry,
            "token_url": self.tokens.token_url,
            "client_id": "lakefeed",
            "client_secret": "${REGISTRY_SECRET}",
        }
        kafka: dict[str, Any] = {"bootstrap_servers": self.kafka.servers(self.listener), "topics": [topic]}
        if self.listener == "mutual":
            kafka["options"] = {"kafka.security.protocol": "SSL"}
        else:
            kafka["login"] = {"scram": {"username": USER, "password": "${BROKER_PASSWORD}"}}
        return {
            "name": name,
            "tls": {"ca_file": str(self.authority.file)} if tls is None else dict(tls),
            "source": {"kafka": kafka},
            "decode": {"avro": {"registry": registry}, "metadata": ["topic", "partition", "offset"]},
            "sink": {"iceberg": {"table": f"lake.secured.{name}"}},
            "sinks": {
                "base": {
                    "jdbc": {"url": database, "table": name, "user": "lakefeed", "password": "${DATABASE_PASSWORD}"}
                },
                "index": {
                    "elasticsearch": {
                        "url": self.gate.url,
                        "index": name,
                        "username": self.gate.username,
                        "password": "${SEARCH_PASSWORD}",
                    }
                },
            },
            "s3": {
                "endpoint": self.s3,
                "region": self.stack.region,
                "access_key": "${AWS_ACCESS_KEY_ID}",
                "secret_key": "${AWS_SECRET_ACCESS_KEY}",
            },
            "catalogs": {
                "lake": {
                    "type": "jdbc",
                    "uri": database,
                    "username": "lakefeed",
                    "password": "${DATABASE_PASSWORD}",
                    "warehouse": f"s3://{self.stack.bucket}/secured",
                }
            },
            "trigger": "1 second",
            "checkpoint": f"s3a://{self.stack.bucket}/checkpoints/{name}",
        }

    def write(self, pipeline: Mapping[str, Any]) -> Path:
        """Write a pipeline file."""
        file = self.folder / f"{pipeline['name']}.yaml"
        file.write_text(yaml.safe_dump(dict(pipeline), sort_keys=False), "utf-8")
        return file


@contextmanager
def secured(
    folder: Path, *, stack: Endpoints, postgres: PostgreSQL, search: SearchServer, mutual: bool = False
) -> Iterator[Secured]:
    """Put TLS proxies before the shared servers, and run a broker, until the block ends.

    With ``mutual``, all servers but the token server require a client certificate of the authority.
    """
    authority = Authority(folder / "authority")
    here = authority.sign("server", "localhost", "127.0.0.1")
    elsewhere = authority.sign("elsewhere", "elsewhere.example")
    with ExitStack() as servers:
        tokens = servers.enter_context(token_server(here))
        kafka = servers.enter_context(secured_kafka(folder / "kafka", authority=authority, tokens=tokens))
        registry = urlsplit(stack.schema_registry_url)
        clients = authority.file if mutual else None
        context = here.server_context(clients=clients)
        before_registry = servers.enter_context(tls_proxy(registry.port or 0, context, accepts=tokens.accepts))
        store = urlsplit(stack.s3_endpoint).port or 0
        before_store = servers.enter_context(tls_proxy(store, context))
        misnamed = servers.enter_context(tls_proxy(store, elsewhere.server_context()))
        servers.enter_context(_tls_of(postgres, here))
        database = postgres.new_database()
        if mutual:
            servers.enter_context(_certificates_for(database, authority))
        yield Secured(
            folder=folder,
            authority=authority,
            stranger=Authority(folder / "stranger", "a stranger"),
            tokens=tokens,
            kafka=kafka,
            registry=f"https://localhost:{before_registry.port}{registry.path}",
            registry_proxy=before_registry,
            s3=f"https://localhost:{before_store.port}",
            misnamed_s3=f"https://localhost:{misnamed.port}",
            stack=stack,
            database=database,
            search=search,
            gate=servers.enter_context(gate(search, certificate=here.both, clients=clients)),
            listener="mutual" if mutual else "scram",
        )


@contextmanager
def _tls_of(postgres: PostgreSQL, own: Signed) -> Iterator[None]:
    """Enable TLS in the server, with copies of the files that the server owns."""
    for name, file in (("server.crt", own.certificate), ("server.key", own.key)):
        _give(postgres, name, file.read_bytes())
    postgres.execute("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        postgres.execute("ALTER SYSTEM RESET ssl", "SELECT pg_reload_conf()")


@contextmanager
def _certificates_for(database: PostgreSQL, authority: Authority) -> Iterator[None]:
    """Let the server require certificates, signed by the authority, from TLS clients of this database."""
    rules = _folder_of(database) / "pg_hba.conf"
    before = rules.read_bytes()
    rule = f"hostssl {database.database} all all scram-sha-256 clientcert=verify-ca\n"
    _give(database, "clients.crt", authority.file.read_bytes())
    _give(database, rules.name, rule.encode() + before)
    database.execute("ALTER SYSTEM SET ssl_ca_file = 'clients.crt'", "SELECT pg_reload_conf()", database="postgres")
    try:
        yield
    finally:
        _give(database, rules.name, before)
        database.execute("ALTER SYSTEM RESET ssl_ca_file", "SELECT pg_reload_conf()", database="postgres")


def _folder_of(postgres: PostgreSQL) -> Path:
    [(data,)] = postgres.execute("SHOW data_directory", database="postgres")
    return Path(data)


def _give(postgres: PostgreSQL, name: str, content: bytes) -> None:
    """Write a file that belongs to the server's user."""
    file = _folder_of(postgres) / name
    file.write_bytes(content)
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, UNPRIVILEGED, UNPRIVILEGED)
