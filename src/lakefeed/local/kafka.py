"""One Kafka node in KRaft mode, broker and controller in one."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from lakefeed.clients.spark import jars
from lakefeed.clients.spark.java import require_java
from lakefeed.errors import WorldError
from lakefeed.local.home import write_private
from lakefeed.local.part import ANSWER_SECONDS, NotReady, Part
from lakefeed.local.ports import LOOPBACK

_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class Kafka(Part):
    """The broker. It makes no topic by itself: a misspelt name must not become one."""

    name = "kafka"
    port_names = ("kafka", "controller")
    jar_groups = ("kafka",)
    grace_seconds = 20

    def prepare(self) -> None:
        settings = self.around.home.settings
        write_private(settings / "kafka-log4j2.properties", _LOGGING)
        write_private(self._properties, self._server_properties())
        if not (self.data / "meta.properties").exists():
            self._format()

    def command(self) -> list[str]:
        # A copy of the defaults of Kafka's own start script, without JMX.
        return [*self._java("-Xms256m", "-Xmx1g", "-XX:+UseG1GC"), "kafka.Kafka", str(self._properties)]

    def check(self) -> None:
        host, port = self.address.split(":")
        try:  # The Kafka client logs failed connections itself: do not let it begin before somebody listens.
            socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            raise NotReady(f"it does not listen: {error}") from error
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            cluster = AdminClient({"bootstrap.servers": self.address, "log_level": 2}).list_topics(
                timeout=ANSWER_SECONDS
            )
        except KafkaException as error:
            raise NotReady(f"it does not answer: {error.args[0].str()}") from error
        if not cluster.brokers:  # A broker lists itself once the controller lets it serve.
            raise NotReady("the broker is not registered yet")

    @property
    def _properties(self) -> Path:
        return self.around.home.settings / "kafka.properties"

    def _java(self, *options: str) -> list[str]:
        classpath = os.pathsep.join(map(str, jars.fetch(self.jar_groups)))
        logging = self.around.home.settings / "kafka-log4j2.properties"
        return [
            str(require_java()),
            *options,
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            classpath,
        ]

    def _server_properties(self) -> str:
        controller = f"{LOOPBACK}:{self.around.ports['controller']}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            # Of the heap, from the start; Kafka's default is 128 MB.
            "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            settings[f"{topic}.replication.factor"] = "1"
            settings[f"{topic}.num.partitions"] = "4"
        for topic in ("transaction.state.log", "share.coordinator.state.topic"):
            settings[f"{topic}.min.isr"] = "1"
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _format(self) -> None:
        """Formats the storage, once; Kafka does not start on an unformatted directory."""
        command = [*self._java("-Xmx128m", "-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            # One word: an id may begin with a dash.
            [*command, f"--cluster-id={self.around.cluster_id}", "--config", str(self._properties)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise WorldError(f"Kafka's storage was not formatted: {done.stdout.strip()[-500:]}", where=str(self.data))
