"""A wheel of the lakefeed that runs, however it was installed."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

from lakefeed.clients.spark.jvm import jar
from lakefeed.operations.packaged import PACKAGED, packaged_root

_NAME = "lakefeed"
_COPIED = ("METADATA", "entry_points.txt")
# The earliest time that a ZIP file can store: the same files give the same wheel.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: lakefeed\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder: Path) -> Path:
    """Write the wheel of the running lakefeed into a folder; return its path.

    An editable installation has no files of its own, so the wheel is made from the package, not from a build.
    """
    package = distribution(_NAME)
    information = f"{_NAME}-{package.version}.dist-info"
    entries = dict(_package_files())
    entries |= {f"{information}/{name}": text.encode() for name in _COPIED if (text := package.read_text(name))}
    entries[f"{information}/WHEEL"] = _WHEEL.encode()
    record = f"{information}/RECORD"
    lines = [f"{name},{_digest(content)},{len(content)}" for name, content in sorted(entries.items())]
    entries[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    target = folder / f"{_NAME}-{package.version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for name, content in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
    return target


def _package_files() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the package, of its examples and of its pages, by their names in the wheel."""
    jar()  # A checkout without the JVM module gets the error that says how to build it.
    package = Path(str(files(_NAME)))
    found = [(package, file) for file in package.rglob("*")]
    for name in PACKAGED:
        root = packaged_root(name)
        if root != package:
            found += [(root, file) for file in (root / name, *(root / name).rglob("*"))]
    for root, file in sorted(found):
        relative = file.relative_to(root)
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in relative.parts):
            yield f"{_NAME}/{relative.as_posix()}", file.read_bytes()


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
