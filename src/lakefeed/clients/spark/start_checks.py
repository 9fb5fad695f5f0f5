"""Run checks in a thread while Java starts, because the checks and Java's start both take seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class StartChecks:
    """A check that runs while a session starts.

    An error of the check ends the start, and is raised even if the start fails, too.

    Use this as a context manager around the start. The start calls ``begin`` after the import of PySpark: if two
    threads import modules that import each other, one thread may see a partly loaded module.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._error: BaseException | None = None
        # Use a daemon thread, so that an interrupted command does not wait for a server that does not answer.
        self._thread = threading.Thread(target=self._run, name="start-checks", daemon=True)

    def _run(self) -> None:
        try:
            self._check()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> StartChecks:
        return self

    def begin(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the check, unless the start was interrupted."""
        if error is None or isinstance(error, Exception):
            self.finish()

    def poll(self) -> None:
        """Raise the check's error if it has failed already."""
        if self._thread.ident is not None and not self._thread.is_alive():
            self.finish()

    def finish(self) -> None:
        """Wait for the check; raise its error if it fails."""
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join()
        if self._error is not None:
            raise self._error from None
