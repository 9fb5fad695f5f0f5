"""Check that the store has all files of a table's newest snapshot, with their right size."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakefeed.ledger.snapshots import head_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

MOST_FILES = 20_000
"""The largest number of files to check per table, newest first; each check is a HEAD request."""
_THREADS = 16


@dataclass(frozen=True)
class LostFile:
    """A file of the table that is missing or damaged in the store.

    Attributes:
        what: ``manifest list``, ``manifest``, ``data file`` or ``delete file``.
        why: the damage, as a sentence.
    """

    what: str
    path: str
    why: str


@dataclass(frozen=True)
class FileCheck:
    """The files of a table's newest snapshot: manifests, data files and delete files.

    Attributes:
        present: the number of files that the store has with their right size.
        unchecked: the number of files beyond ``MOST_FILES``.
    """

    present: int = 0
    lost: tuple[LostFile, ...] = ()
    unchecked: int = 0

    def __add__(self, other: FileCheck) -> FileCheck:
        return FileCheck(self.present + other.present, self.lost + other.lost, self.unchecked + other.unchecked)


def check_files(table: Table, feed: str | None = None) -> FileCheck:
    """Read the manifests of the branch that a feed lands in, and check their files with HEAD requests."""
    head = head_of(table, feed)
    if head is None:
        return FileCheck()
    io, lost, opened = table.io, list[LostFile](), 0
    named: dict[str, tuple[str, int]] = {}
    try:
        manifests = head.manifests(io)
        opened += 1
    except Exception as error:
        return FileCheck(lost=(LostFile("manifest list", head.manifest_list, _reason(error)),))
    for manifest in sorted(manifests, key=lambda each: each.sequence_number or 0, reverse=True):
        try:
            entries = manifest.fetch_manifest_entry(io)
            opened += 1
        except Exception as error:
            lost.append(LostFile("manifest", manifest.manifest_path, _reason(error)))
            continue
        for entry in entries:
            file = entry.data_file
            named[file.file_path] = ("data file" if file.content == 0 else "delete file", file.file_size_in_bytes)
    looked_for = list(islice(named.items(), MOST_FILES))
    lost += _lost(io, looked_for)
    present = opened + len(looked_for) - sum(each.path in named for each in lost)
    return FileCheck(present, tuple(lost), len(named) - len(looked_for))


def _lost(io: FileIO, files: list[tuple[str, tuple[str, int]]]) -> Iterator[LostFile]:
    def look(file: tuple[str, tuple[str, int]]) -> LostFile | None:
        path, (what, size) = file
        try:
            found = len(io.new_input(path))
        except FileNotFoundError as error:
            return LostFile(what, path, _reason(error))
        return None if found == size else LostFile(what, path, f"it has {found:,} bytes instead of {size:,}")

    with ThreadPoolExecutor(_THREADS) as pool:
        yield from (each for each in pool.map(look, files) if each is not None)


def _reason(error: Exception) -> str:
    """Describe the damage of a file that cannot be read; raise the error instead if the store is at fault."""
    if isinstance(error, FileNotFoundError):
        return "it is gone"
    if isinstance(error, OSError):
        raise error
    return f"it cannot be read ({type(error).__name__})"
