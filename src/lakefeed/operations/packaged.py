"""The folders of the repository that the wheel brings along: examples and pages."""

from __future__ import annotations

from pathlib import Path

from lakefeed.errors import ResourceMissing


def packaged_root(folder: str) -> Path:
    """Return what a folder such as ``examples`` is in: the installed package, or a checkout.

    Raises:
        ResourceMissing: neither has it.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package, package.parents[1]):
        if (root / folder).is_dir():
            return root
    raise ResourceMissing(f"the {folder} are not there", where=str(package), hint="install lakefeed from its wheel")
