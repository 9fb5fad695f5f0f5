"""Writes files of this machine as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

FOR_ALL, OWNER_ONLY = 0o644, 0o600


def write_whole(path: Path, text: str, *, overwrite: bool, mode: int = FOR_ALL) -> bool:
    """Write a file that no reader sees half, not even after a loss of power; its folder is made where it is missing.

    Without ``overwrite`` return False if the file exists: of two writers at one time only one returns True. A device
    or a pipe that may be overwritten is written into.
    """
    if overwrite and path.exists() and not path.is_file():
        # A rename would put a file in the place of, say, /dev/null.
        path.write_text(text, "utf-8")
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # As an editor would have made it, not private as temporary files are.
        Path(temporary).chmod(mode)
        if overwrite:
            Path(temporary).replace(path)
            return True
        try:
            # Unlike a rename, a link never replaces a file that another process has just written.
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        return True
    except OSError as error:
        # Of a full disk it does not say where.
        error.filename = str(path)
        raise
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()


def write_own_file(path: Path, text: str) -> None:
    """Replace a file that this user alone can read, or create it with its folder; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, text, overwrite=True, mode=OWNER_ONLY)


def read_own_file(path: Path, *, most_bytes: int = 1 << 26) -> str | None:
    """Read a file; None if there is none, if it is not this user's alone, or if it is too large."""
    try:
        stat = path.stat()
        if stat.st_uid != os.getuid() or stat.st_mode & 0o077 or stat.st_size > most_bytes:
            return None
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None
