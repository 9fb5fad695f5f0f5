"""Cache the result of a read for some seconds, and read in a separate thread with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakefeed.errors import LakefeedError
from lakefeed.messages.redaction import redacted

Document = dict[str, Any]


@dataclass(frozen=True)
class _Found:
    at: float
    document: Document


class CachedRead:
    """One read that runs only on request, and at most once at a time.

    A caller waits for the read. If the read takes longer than ``limit``, the caller gets the previous document, or an
    error, and the read continues. No other read begins before it has ended.

    Args:
        read: returns the document.
        failed: makes a document of an error's text.
        seconds: how long a document is reused.
        limit: how long a caller waits, in seconds.
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
        self._found: _Found | None = None
        self._ended: threading.Event | None = None

    def get(self) -> Document:
        """Return the document; read it again if the cached one is too old."""
        with self._lock:
            found, ended = self._found, self._ended
            if found is not None and self._clock() - found.at < self._seconds:
                return found.document
            if ended is None:
                ended = self._ended = threading.Event()
                threading.Thread(target=self._run, args=(ended,), name="lakefeed-details", daemon=True).start()
        if not ended.wait(self._limit):
            if found is not None:
                return found.document
            return self._failed(f"it takes longer than {self._limit:g} seconds to read; it continues")
        with self._lock:
            return self._found.document if self._found is not None else self._failed("it was not read")

    def _run(self, ended: threading.Event) -> None:
        try:
            document = self._read()
        except Exception as error:
            document = self._failed(explained(error))
        with self._lock:
            self._found = _Found(self._clock(), document)
            self._ended = None
        ended.set()


def explained(error: BaseException) -> str:
    """Return an error as a sentence for a page, without secrets; for errors that are not lakefeed's, only the class."""
    if isinstance(error, LakefeedError):
        where = f" ({error.where})" if error.where else ""
        hint = f"; {error.hint}" if error.hint else ""
        return redacted(f"{error.what}{where}{hint}")
    return f"it failed: {type(error).__name__}"
