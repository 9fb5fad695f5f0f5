"""Read a document in a separate thread, and cache it for some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lakefeed.errors import LakefeedError
from lakefeed.messages.redaction import redacted

Document = dict[str, Any]


class CachedRead:
    """A document that is read on request, never by two threads at once.

    If the read takes longer than ``limit``, the caller gets the previous document, or an error, and the read continues.

    Args:
        read: returns the document.
        failed: returns the document that shows an error's text.
        seconds: how long a document is reused.
        limit: how many seconds a caller waits.
    """

    def __init__(
        self,
        read: Callable[[], Document],
        *,
        failed: Callable[[str], Document],
        seconds: float,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._failed = failed
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._document: Document | None = None
        self._read_at = 0.0
        self._ended: threading.Event | None = None

    def get(self) -> Document:
        """Return the cached document; read the document again if the cached one is too old."""
        with self._lock:
            previous, ended = self._document, self._ended
            if previous is not None and self._clock() - self._read_at < self._seconds:
                return previous
            if ended is None:
                ended = self._ended = threading.Event()
                threading.Thread(target=self._run, args=(ended,), name="lakefeed-details", daemon=True).start()
        document = self._document if ended.wait(self._limit) else previous
        return document or self._failed(f"the read takes longer than {self._limit:g} seconds; it continues")

    def _run(self, ended: threading.Event) -> None:
        try:
            document = self._read()
        except Exception as error:
            document = self._failed(explained(error))
        with self._lock:
            self._document, self._read_at, self._ended = document, self._clock(), None
        ended.set()


def explained(error: BaseException) -> str:
    """Return an error as a sentence without secrets; of an error that is not lakefeed's, name only the class."""
    if isinstance(error, LakefeedError):
        where = f" ({error.where})" if error.where else ""
        hint = f"; {error.hint}" if error.hint else ""
        return redacted(f"{error.what}{where}{hint}")
    return f"the read failed: {type(error).__name__}"
