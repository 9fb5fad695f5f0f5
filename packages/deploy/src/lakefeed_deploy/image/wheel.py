"""Build wheels of the running lakefeed and its plug-ins, even of packages that were not installed from a wheel."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from importlib.resources import files
from pathlib import Path

from lakefeed.clients.environment import PACKAGED, packaged_root
from lakefeed.clients.spark.jvm import jar

_NAME = "lakefeed"
_PRIVATE = "Private :: Do Not Upload"
"""The classifier of packages that only this repository uses, such as the bench."""
_COPIED = ("METADATA", "entry_points.txt")
# All files get this time, so that equal files give equal wheels; a ZIP file cannot store an earlier time.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: lakefeed\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheels(folder: Path) -> list[Path]:
    """Write the wheels of the running lakefeed and its plug-ins into a folder; return their paths, the core's first.

    A wheel gets the files in the package's folder, because an editable installation has no list of files.
    """
    own = {name: each for each in distributions() if re.match(rf"{_NAME}(-|$)", name := _normal(each.name))}
    own = {name: each for name, each in own.items() if _PRIVATE not in (each.metadata.get_all("Classifier") or [])}
    return [_write(folder, name, own[name]) for name in sorted(own)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _write(folder: Path, name: str, package: Distribution) -> Path:
    module = name.replace("-", "_")
    information = f"{module}-{package.version}.dist-info"
    entries = dict(_files(module))
    entries |= {f"{information}/{each}": text.encode() for each in _COPIED if (text := package.read_text(each))}
    entries[f"{information}/WHEEL"] = _WHEEL.encode()
    record = f"{information}/RECORD"
    lines = [f"{name},{_digest(content)},{len(content)}" for name, content in sorted(entries.items())]
    entries[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    target = folder / f"{module}-{package.version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for name, content in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
    return target


def _files(module: str) -> Iterator[tuple[str, bytes]]:
    """Yield a package's files with their names in the wheel; lakefeed's own wheel also gets examples and pages."""
    package = Path(str(files(module)))
    found = [(package, file) for file in package.rglob("*")]
    if module == _NAME:
        jar()  # Raises an error if a clone has no built JVM module; the hint names the command that builds it.
        for name in PACKAGED:
            root = packaged_root(name)
            if root != package:
                found += [(root, file) for file in (root / name, *(root / name).rglob("*"))]
    for root, file in sorted(found):
        relative = file.relative_to(root)
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in relative.parts):
            yield f"{module}/{relative.as_posix()}", file.read_bytes()


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
