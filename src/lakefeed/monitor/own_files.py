"""Files in the user's own folder that this user alone can read, replaced as a whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

OWNER_ONLY = 0o600


def write_own_file(path: Path, text: str) -> None:
    """Replace a file, or create it with its folder; raises OSError, and leaves no part of it then."""
    partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.unlink(missing_ok=True)
        # With its mode from the beginning: at no moment may another user open it.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.replace(path)
    except OSError:
        _remove(partial)
        raise


def read_own_file(path: Path, *, most_bytes: int = 1 << 26) -> str | None:
    """Read a file; None if there is none, if it is not this user's alone, or if it is too large."""
    try:
        stat = path.stat()
        if stat.st_uid != os.getuid() or stat.st_mode & 0o077 or stat.st_size > most_bytes:
            return None
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
