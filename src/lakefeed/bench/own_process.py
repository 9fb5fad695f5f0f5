"""Spark jobs in processes of their own: every case begins with a cold JVM, and one runs at a time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lakefeed.clients.spark.errors import translated
from lakefeed.errors import JobFailed
from lakefeed.local import Endpoints

_LAST_WORDS_SECONDS = 10.0

Job = Callable[..., None]
"""Called in the new process with a connection to this one and the arguments given; at a module's top level."""


@dataclass(frozen=True)
class _Failed:
    what: str
    where: str | None
    hint: str | None


class Conversation:
    """The messages from and to a job in its own process."""

    def __init__(self, connection: Connection, *, log: Path) -> None:
        self._connection = connection
        self._log = log

    def hear(self) -> Any:
        """The job's next message.

        Raises:
            JobFailed: it has ended instead.
        """
        try:
            message = self._connection.recv()
        except EOFError:
            raise JobFailed(
                "the process of the job has ended early", where=str(self._log), hint="read the log"
            ) from None
        if isinstance(message, _Failed):
            raise JobFailed(message.what, where=message.where or str(self._log), hint=message.hint)
        return message

    def proceed(self) -> None:
        """Lets a job that waits for it continue."""
        self._connection.send(None)


@contextmanager
def started(job: Job, *arguments: Any, environment: dict[str, str], log: Path) -> Iterator[Conversation]:
    """Runs a job in a fresh process, whose output and JVM's log go into a file.

    Args:
        job: see ``Job``.
        arguments: further ones; they travel through a pipe, so secrets in them show nowhere.
        environment: added to this process's.
        log: the file.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(job, there, arguments, environment, log))
    process.start()
    there.close()  # Otherwise the end of the process would not show as the end of the pipe.
    try:
        yield Conversation(here, log=log)
        process.join()
    finally:
        here.close()
        process.join(_LAST_WORDS_SECONDS)
        if process.is_alive():
            process.terminate()
            process.join()


def _run(job: Job, connection: Connection, arguments: tuple[Any, ...], environment: dict[str, str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.environ.update(environment)
    try:
        job(connection, *arguments)
    except Exception as error:
        failure = translated(error)
        connection.send(_Failed(failure.what, failure.where, failure.hint))
        raise
    finally:
        connection.close()


def environment_for(endpoints: Endpoints, *, warehouse: str) -> dict[str, str]:
    """The stack as environment, with another warehouse."""
    return {**endpoints.as_environment(), "LAKEFEED_WAREHOUSE": warehouse}
