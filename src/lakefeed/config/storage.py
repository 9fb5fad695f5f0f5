"""Places for checkpoints, files and warehouses: in an S3 store, or in a folder of this machine."""

from __future__ import annotations

import re
from pathlib import Path

FORMS = "s3a://bucket/path; or on this machine /path, file:///path"
_STORE = re.compile(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)")
# Hadoop reads some as a pattern, URLs give the others a meaning.
_SIGNS = re.compile(r"[?#*{}\[\]\\%\x00-\x1f\x7f]")


def is_local(path: str | None) -> bool:
    """Check that a place is on this machine."""
    return path is not None and path.startswith(("/", "~/", "file:"))


def local_path(path: str) -> str:
    """Return a folder of this machine as ``file:///path``, without a slash at its end; ``~`` is the user's home."""
    rest = path.removeprefix("file:")
    if path.startswith("file:") and rest.startswith("//"):
        # What stands between two and three slashes is a host.
        rest = rest.removeprefix("//")
    if rest.startswith("~/"):
        try:
            rest = str(Path(rest).expanduser())
        except RuntimeError:
            raise ValueError("this user has no home that '~' could stand for") from None
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if not rest.startswith("/") or not parts:
        raise ValueError("a folder of this machine is written from the root on: /path or file:///path")
    if ".." in parts:
        raise ValueError("write the folder without '..'")
    if (sign := _SIGNS.search(rest)) is not None:
        raise ValueError(f"the name of the folder has the character {sign[0]!r}, which Spark and Iceberg misread")
    return f"file:///{'/'.join(parts)}"


def storage_path(path: str) -> str:
    """Return a place as ``s3a://bucket/key`` or ``file:///path``, without a slash at its end."""
    if is_local(path):
        return local_path(path)
    match = _STORE.fullmatch(path)
    if not match or ".." in match[2].split("/"):
        raise ValueError(f"write it as {FORMS}")
    return f"s3a://{match[1]}/{match[2].rstrip('/')}"


def local_folder(path: str) -> Path:
    """Return the folder of a place that ``is_local``."""
    return Path(local_path(path).removeprefix("file://"))
