"""Compare the lines of each part of the repository with its limit in ``tools/sizes.toml``: part of ``make lint``.

Prints a table; exit status 1 if a part or a file exceeds its limit. Explain a higher limit in the commit message.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "tools" / "sizes.toml"


def files_of(patterns: list[str]) -> Iterator[Path]:
    """Yield the files that match a pattern, without downloaded files (in a folder ``vendor``)."""
    for pattern in patterns:
        yield from (path for path in ROOT.glob(pattern) if path.is_file() and "vendor" not in path.parts)


def main() -> int:
    limits = tomllib.loads(LIMITS.read_text("utf-8"))
    longest: int = limits["longest_file"]
    faults, rows = [], []
    for part, limit in limits["parts"].items():
        texts = {path: path.read_text("utf-8") for path in files_of(limit["files"])}
        lines = {path: len(text.splitlines()) for path, text in texts.items() if not text.startswith("<!-- Made by ")}
        total = sum(lines.values())
        rows.append(f"{part:24} {len(lines):6} {total:8,} {limit['lines']:8,}")
        if not lines or total > limit["lines"]:
            faults.append(f"{part}: {total:,} lines, {limit['lines']:,} are allowed")
        if not limit.get("any_length"):
            faults += [f"{path.relative_to(ROOT)}: {n} lines" for path, n in lines.items() if n > longest]
    print("\n".join([f"{'part':24} {'files':>6} {'lines':>8} {'limit':>8}", *rows, *faults]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
