"""Find the processes of a process group or a session."""

import time
from pathlib import Path


def members(group: int) -> list[str]:
    """Return the command lines of the processes of a process group or session, without zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Field 2, the name in parentheses, may contain any character; state, parent, group and session come after
            # it.
            state, _, its_group, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX" and group in (int(its_group), int(its_session)):
            found.append(f"{folder.name} {line[:150]}")
    return found


def assert_gone(group: int, *, seconds: float = 30) -> None:
    """Check that all members end within the time."""
    deadline = time.monotonic() + seconds
    while found := members(group):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
