"""What every server of the local stack has in common."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lakefeed.clients.s3_signature import Keys
from lakefeed.local.home import Home
from lakefeed.local.ports import LOOPBACK
from lakefeed.local.report import Progress

ANSWER_SECONDS = 3
"""How long one question of a health check may take."""


class NotReady(Exception):
    """A part does not answer yet, or not rightly; says why."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a part is given.

    Attributes:
        home: where its files are.
        ports: by the names in :attr:`Part.port_names`.
        credentials: the S3 key pair.
        cluster_id: Kafka's.
    """

    home: Home
    ports: Mapping[str, int]
    credentials: Keys
    cluster_id: str


@dataclass(frozen=True)
class Part(ABC):
    """One server: how it is prepared, started, asked for its health and stopped."""

    around: Surroundings

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    """What it listens on; the first is the one that clients use."""
    jar_groups: ClassVar[tuple[str, ...]] = ()
    grace_seconds: ClassVar[float] = 10
    """How long it may take to stop by itself."""

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{LOOPBACK}:{self.around.ports[self.port_names[0]]}"

    @property
    def data(self) -> Path:
        """Where it keeps what must survive."""
        return self.around.home.data / self.name

    def build(self, report: Progress) -> None:  # noqa: B027 (most parts need none)
        """Makes the program, where it is not simply fetched. Called before anything is started."""

    @abstractmethod
    def prepare(self) -> None:
        """Writes its configuration, and its data directory the first time. May take seconds."""

    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments. Readable by everybody (``ps``): no secrets."""

    def environment(self) -> dict[str, str]:
        """Added to ours; readable by the same user only."""
        return {}

    @abstractmethod
    def check(self) -> None:
        """Asks whether it serves.

        Raises:
            NotReady: it does not.
        """

    def finish(self) -> None:  # noqa: B027 (most parts need none)
        """What is to be done once it serves, each time. Must not mind if it was done before.

        Raises:
            NotReady: it could not be done.
        """


def ask(request: urllib.request.Request | str) -> bytes:
    """The body of an HTTP answer from one of our own servers.

    Raises:
        NotReady: no answer, or another status than 2xx.
    """
    # Never through a proxy: the servers are on this machine, whatever HTTP_PROXY says.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ANSWER_SECONDS) as response:
            body: bytes = response.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(200).decode(errors="replace")
        raise NotReady(f"it answers HTTP {error.code}: {detail}") from error
    except (OSError, http.client.HTTPException) as error:
        raise NotReady(f"it does not answer: {getattr(error, 'reason', None) or error}") from error
