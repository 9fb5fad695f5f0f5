"""Lines for the user's shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path


def path_lines() -> Iterator[str]:
    """Yield the line that lets a shell find lakefeed, unless it does."""
    own = Path(sys.executable).parent
    if shutil.which("lakefeed") != str(own / "lakefeed"):
        yield f'export PATH={shlex.quote(str(own))}:"$PATH"'
