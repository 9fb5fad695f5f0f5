"""Run three brokers and their controller, each in a separate process, with unclean leader election enabled."""

import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from lakefeed.clients.kafka.librdkafka import SILENCE
from lakefeed.clients.s3 import Keys
from lakefeed_local.home import Home
from lakefeed_local.part import NotReady, choose_free
from lakefeed_local.servers import Kafka
from tests.support.servers.process import Restartable, restartable, wait_for

BROKERS = (1, 2, 3)
_CONTROLLER = 100
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, kw_only=True)
class Node(Kafka):
    """A broker or the controller."""

    number: int
    jars: str = "kafka"
    joins: list[bool] = field(default_factory=list)
    """Empty while the nodes start together; then ``started`` also waits until this node answers."""

    @property
    def jar_groups(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.jars,)

    def command(self) -> list[str]:
        return self._main("kafka.Kafka", str(self.properties), options=_OPTIONS)

    def started(self) -> bool:
        return not self.joins or self.listens()

    def listens(self) -> bool:
        """Return whether the broker is registered and answers; True for the controller, which only has to run."""
        if self.number == _CONTROLLER:
            return True
        try:
            self.check()
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2}, logger=SILENCE)
            return self.number in admin.list_topics(timeout=5).brokers
        except (NotReady, KafkaException):
            return False

    def _settings(self) -> dict[str, str]:
        found = super()._settings()
        controller = f"127.0.0.1:{self.ports['controller']}"
        found |= {
            "node.id": str(self.number),
            "controller.quorum.voters": f"{_CONTROLLER}@{controller}",
            "unclean.leader.election.enable": "true",
            "unclean.leader.election.interval.ms": "1000",
            # On a busy machine a broker may briefly lose the leadership of a partition; the controller soon restores
            # it.
            "leader.imbalance.check.interval.seconds": "2",
            "leader.imbalance.per.broker.percentage": "0",
            "broker.session.timeout.ms": "5000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "3000",
            "controlled.shutdown.enable": "true",
        }
        if self.number == _CONTROLLER:
            found |= {"process.roles": "controller", "listeners": f"CONTROLLER://{controller}"}
            del found["advertised.listeners"]
        else:
            found |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{self.address}"}
        return found


@dataclass
class Cluster:
    """The running brokers, by number."""

    nodes: dict[int, Node]
    servers: dict[int, Restartable] = field(default_factory=dict)

    @property
    def addresses(self) -> str:
        return ",".join(node.address for number, node in self.nodes.items() if number != _CONTROLLER)

    def create_topic(self, name: str, assignments: list[list[int]]) -> None:
        """Create a topic with these replicas for its partitions, the preferred leader first."""
        new = NewTopic(name, num_partitions=len(assignments), replica_assignment=assignments)
        admin = self.admin()
        admin.create_topics([new])[name].result(20)
        wait_for(f"topic {name}", lambda: self.leaders(name) == [each[0] for each in assignments], logs=str, seconds=60)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.addresses, "log_level": 2}, logger=SILENCE)

    def leaders(self, topic: str) -> list[int]:
        """Return the leader of each partition; -1 for a partition without a leader."""
        try:
            found = self.admin().list_topics(timeout=5).topics.get(topic)
        except KafkaException:
            return []
        return [] if found is None else [found.partitions[number].leader for number in sorted(found.partitions)]

    def send(self, topic: str, values: list[bytes], *, partition: int = 0, acks: str = "all") -> None:
        """Send records, acknowledged by all in-sync replicas or by the leader; an unclean election may lose both."""
        producer = Producer({"bootstrap.servers": self.addresses, "acks": acks, "log_level": 2}, logger=SILENCE)
        for value in values:
            producer.produce(topic, value=value, partition=partition)
        assert producer.flush(60) == 0

    def stop(self, number: int) -> None:
        """Stop a broker as an operator does, so that the broker hands over its partitions."""
        self.servers[number].process.terminate()
        self.servers[number].process.wait(30)

    def restart(self, number: int, *, pause: float = 0.0) -> None:
        self.stop(number)
        time.sleep(pause)
        self.servers[number].start_again()

    def cut_off(self, topic: str, *, keeps: int, gone: int) -> None:
        """Let the lagging replica ``keeps`` become leader, without the records that only the broker ``gone`` has."""
        self.servers[gone].kill()
        self.servers[keeps].start_again()
        wait_for("an unclean leader", lambda: set(self.leaders(topic)) == {keeps}, logs=str, seconds=60)


def _node(folder: Path, number: int, port: int, controller: int, jars: str) -> Node:
    home = Home(folder / str(number))
    home.make()
    ports = {"kafka": port, "controller": controller}
    keys = Keys(access_key="", secret_key=home.credentials().secret_key)
    return Node(home=home, ports=ports, credentials=keys, cluster_id="MkU3OEVBNTcwNTJENDM2Qg", number=number, jars=jars)


@contextmanager
def kafka_cluster(folder: Path, *, brokers: Sequence[int] = BROKERS, jars: str = "kafka") -> Iterator[Cluster]:
    """Run the cluster until the block ends, from a group of locked jars."""
    numbers = (_CONTROLLER, *brokers)
    ports: list[int] = []
    for _ in numbers:
        ports.append(choose_free(avoid=ports))
    nodes = {n: _node(folder, n, ports[at], ports[0], jars) for at, n in enumerate(numbers)}
    nodes[_CONTROLLER].prepare()
    for number in brokers:
        # Copy a formatted folder, because formatting another one would start a JVM.
        shutil.copytree(nodes[_CONTROLLER].data, nodes[number].data, dirs_exist_ok=True)
        meta = nodes[number].data / "meta.properties"
        lines = [line for line in meta.read_text().splitlines() if not line.startswith(("node.id", "directory.id"))]
        directory = uuid.uuid4().hex[:21] + "g"
        meta.write_text("\n".join([*lines, f"node.id={number}", f"directory.id={directory}", ""]))
        nodes[number].prepare()
    cluster = Cluster(nodes)
    with ExitStack() as running:
        for number, node in nodes.items():
            environment = {**os.environ, **node.environment()}
            # Do not wait for this broker, because all brokers must start at the same time.
            server = restartable(node.command(), log=node.log, ready=node.started, environment=environment)
            cluster.servers[number] = running.enter_context(server)
        for node in nodes.values():
            node.joins.append(True)
        for number in brokers:
            wait_for(f"broker {number}", nodes[number].listens, logs=nodes[number].log.read_text, seconds=60)
        yield cluster
