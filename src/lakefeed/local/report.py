"""What ``up`` and ``status`` say about the parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class StartStep:
    """Something that happened to a part during ``up`` or ``down``.

    Attributes:
        part: its name.
        state: what it is now.
        detail: an address, a log file, a reason; may be empty.
        seconds: since the part's turn began.
    """

    part: str
    state: Literal["building", "starting", "ready", "already up", "restarting", "moved", "failed", "stopped"]
    detail: str = ""
    seconds: float = 0


Progress = Callable[[StartStep], None]
"""Called for each step, from any thread."""


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """How a part is.

    Attributes:
        part: its name.
        state: ``up``: it answers. ``not answering``: the process runs. ``died``: it was not stopped by us.
            ``down``: it was, or never started.
        address: ``host:port`` when it is up, or was when it was last up.
        pid: of its process, if that runs.
        log: where its output is.
        detail: why it is not up, if that is known.
    """

    part: str
    state: Literal["up", "not answering", "died", "down"]
    address: str | None
    pid: int | None
    log: Path
    detail: str = ""
