"""Copy the chart library of ``npm.lock`` into the dashboard's ``static/vendor``: ``python -m tools.build_page``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tools import npm_packages

PACKAGE = Path(__file__).resolve().parent.parent / "packages" / "dashboard"
VENDOR = PACKAGE / "src" / "lakefeed_dashboard" / "static" / "vendor"
FILES = {
    "uPlot.iife.min.js": "dist/uPlot.iife.min.js",
    "uPlot.min.css": "dist/uPlot.min.css",
    "uPlot.LICENSE": "LICENSE",
}


def build(*, say: Callable[[str], None] = print) -> Path:
    """Write the files that are missing or differ from the lock, and return their folder.

    A source archive of lakefeed has the files, so building from the archive needs no registry.
    """
    integrity = npm_packages.locked("uplot")["files"]
    missing = {
        name: path
        for name, path in FILES.items()
        if not (VENDOR / name).is_file() or npm_packages.integrity((VENDOR / name).read_bytes()) != integrity[path]
    }
    if not missing:
        say("the page's chart library is up to date")
        return VENDOR
    contents = npm_packages.read("uplot", *missing.values())
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, content in zip(missing, contents, strict=True):
        partial = VENDOR / f"{name}.partial"
        partial.write_bytes(content)
        partial.replace(VENDOR / name)
    say(f"the page's chart library is built, {sum((VENDOR / name).stat().st_size for name in FILES)} bytes")
    return VENDOR


def main() -> int:
    try:
        build()
    except npm_packages.NotFetched as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
