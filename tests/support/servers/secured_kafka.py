"""A broker with SASL_SSL for SCRAM and OAUTHBEARER, and with SSL for clients that have a certificate."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lakefeed.clients.s3 import Keys
from lakefeed_local.home import Home
from lakefeed_local.part import NotReady, choose_free
from lakefeed_local.servers import Kafka
from tests.support.servers.authority import Authority, Signed
from tests.support.servers.process import running
from tests.support.servers.tokens import TokenServer

USER, PASSWORD = "lakefeed", 'sec"ret\\ one'
_PORTS = ("kafka", "controller", "scram", "oauth", "mutual", "misnamed")


@dataclass(frozen=True, kw_only=True)
class SecuredKafka(Kafka):
    """The broker's settings; the listener ``misnamed`` uses SCRAM, and has a certificate for another host."""

    authority: Authority
    certificate: Signed
    misnamed: Signed
    tokens: TokenServer

    port_names = _PORTS  # type: ignore[assignment]  # The local stack's broker has fewer ports.

    def servers(self, listener: str) -> str:
        """Return the address of a listener."""
        return f"localhost:{self.ports[listener]}"

    def command(self) -> list[str]:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens.url}/jwks"
        return self._main("kafka.Kafka", str(self.properties), options=("-Xmx512m", allowed))

    def _settings(self) -> dict[str, str]:
        names = {"scram": "SASL_SSL", "oauth": "SASL_SSL", "mutual": "SSL", "misnamed": "SASL_SSL"}
        listeners = "".join(f",{name.upper()}://{self.servers(name)}" for name in names)
        kafka = "org.apache.kafka.common.security"
        found = super()._settings()
        found["listeners"] += listeners
        found["advertised.listeners"] += listeners
        found["listener.security.protocol.map"] += "".join(f",{name.upper()}:{kind}" for name, kind in names.items())
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.misnamed.ssl.keystore.location": str(self.misnamed.both),
            # The broker closes a connection when its token expires, unless the client has logged in again.
            "connections.max.reauth.ms": "3600000",
        }
        for name in ("scram", "misnamed"):
            found |= {
                f"listener.name.{name}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                f"listener.name.{name}.scram-sha-512.sasl.jaas.config": f"{kafka}.scram.ScramLoginModule required;",
            }
        jaas = 'unsecuredLoginStringClaim_sub="broker" ssl.truststore.type="PEM" '
        jaas += f'ssl.truststore.location="{self.authority.file}"'
        prefix = "listener.name.oauth.oauthbearer.sasl"
        return found | {
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.server.callback.handler.class": f"{kafka}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{prefix}.jaas.config": f"{kafka}.oauthbearer.OAuthBearerLoginModule required {jaas};",
            f"{prefix}.oauthbearer.jwks.endpoint.url": f"{self.tokens.url}/jwks",
            f"{prefix}.oauthbearer.expected.audience": "kafka",
            f"{prefix}.oauthbearer.expected.issuer": self.tokens.url,
            f"{prefix}.oauthbearer.clock.skew.seconds": "0",
        }


@contextmanager
def secured_kafka(folder: Path, *, authority: Authority, tokens: TokenServer) -> Iterator[SecuredKafka]:
    """Run a broker until the block ends."""
    home = Home(folder)
    home.make()
    ports: dict[str, int] = {}
    for name in _PORTS:
        ports[name] = choose_free(avoid=list(ports.values()))
    broker = SecuredKafka(
        home=home,
        ports=ports,
        credentials=Keys(access_key="", secret_key=home.credentials().secret_key),
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        authority=authority,
        certificate=authority.sign("broker", "localhost", "127.0.0.1"),
        misnamed=authority.sign("another-broker", "elsewhere.example"),
        tokens=tokens,
    )
    broker.prepare()

    def ready() -> bool:
        try:
            broker.check()
        except NotReady:
            return False
        return True

    with running(broker.command(), log=broker.log, ready=ready, environment={**os.environ, **broker.environment()}):
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = AdminClient({"bootstrap.servers": broker.address})
        change = UserScramCredentialUpsertion(USER, how, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(20)
        yield broker
