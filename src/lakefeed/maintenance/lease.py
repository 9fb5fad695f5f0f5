"""Allows one upkeep job at a table at a time: a lease in the table's properties that ends by itself.

Taken by compare-and-set (``io.lakefeed.upkeep.Lease``) and made longer while the work continues; a job that is killed
leaves it to end. It keeps work from being done twice. That commits do no harm to each other is Iceberg's own check, and
does not depend on it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakefeed.clients.spark.jvm import java
from lakefeed.errors import TableBusy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 120.0
POLL_SECONDS = 1.0


class Lease:
    """The right to look after a table. Use it as a context manager.

    Args:
        loaded: the Java table.
        name: catalog.namespace.table, for messages.
        wait: seconds to wait for another job's end.
        seconds: how long it lasts without being made longer; so long a killed job keeps others out.

    Attributes:
        lost: set when another job has it, because this one was not able to make it longer in time.
        notes: table properties to set when it is given back.

    Raises:
        TableBusy: on entering, if another job is at work and does not end in time.
    """

    def __init__(
        self, spark: SparkSession, loaded: Any, *, name: str, wait: float = 0.0, seconds: float = SECONDS
    ) -> None:
        self._java = java(spark).upkeep.Lease
        self._loaded = loaded
        self._name = name
        self._wait = wait
        self._seconds = seconds
        self._who = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="lakefeed-upkeep-lease", daemon=True)
        self.lost = threading.Event()
        self.notes: dict[str, str] = {}

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._wait
        while (held := self._take()) is not None:
            if time.monotonic() >= deadline:
                who, _, until = held.rpartition(" ")
                left = max(0, int(until) / 1000 - time.time())
                raise TableBusy(
                    f"another upkeep job is at work on the table ({who})",
                    where=self._name,
                    hint=f"its lease ends in {left:.0f} s unless it makes it longer; --wait waits for it",
                )
            time.sleep(POLL_SECONDS)
        self._renewal.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewal.join()
        self._java.release(self._loaded, self._who, self.notes)

    def _take(self) -> str | None:
        now = int(time.time() * 1000)
        held = self._java.take(self._loaded, self._who, now, now + int(self._seconds * 1000))
        return None if held is None else str(held)

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            if self._take() is not None:
                self.lost.set()
                return
