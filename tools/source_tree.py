"""The folders of the repository's Python packages."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "src" / "lakefeed"
PACKAGES = (CORE, *sorted(path.parent for path in ROOT.glob("packages/*/src/*/__init__.py")))
