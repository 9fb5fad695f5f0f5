"""Watch a folder of this machine, and kill a driver when a certain file appears in it."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path


class DiskWatch(threading.Thread):
    """Waits for a new file of each pattern, one after the other; the last file calls ``act``.

    Attributes:
        begun: called when the file of the first pattern appears.
        seen: the file of the last pattern; None if no such file has appeared.
    """

    def __init__(
        self, folder: Path, patterns: Sequence[str], act: Callable[[], None], *, begun: Callable[[], object] = int
    ) -> None:
        super().__init__(name="disk-watch", daemon=True)
        self._folder, self._act, self._begun = folder, act, begun
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._ending = threading.Event()
        self.seen: str | None = None

    def run(self) -> None:
        before = set(self._matching(self._patterns[0]))
        for number, pattern in enumerate(self._patterns):
            if number:
                before = set(self._matching(pattern))
            while (found := next((path for path in self._matching(pattern) if path not in before), None)) is None:
                if self._ending.is_set():
                    return
                time.sleep(0.0005)
            if not number:
                self._begun()
        self._act()
        self.seen = found

    def close(self) -> None:
        self._ending.set()
        self.join()

    def _matching(self, pattern: re.Pattern[str]) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = f"{folder}/{name}"
                if pattern.search(path):
                    yield path
