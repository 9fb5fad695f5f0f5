"""Find the servers' addresses in this process's environment variables, or else in those of the running local stack.

``lakefeed local up`` writes a file with its endpoints and processes into its home. This module reads only the file, so
the clients do not depend on the local stack's code.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from lakefeed.errors import ResourceMissing

if TYPE_CHECKING:
    from lakefeed.config.connections import Connections

PACKAGED = ("examples", "docs", "CHANGELOG.md")
"""Files and folders that are side by side in the package and in the repository, so that links work."""
ENDPOINT_VARIABLES = {"KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL", "AWS_ENDPOINT_URL_S3", "LAKEFEED_CATALOG_URI"}


class StackEnvironment(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    environment: dict[str, str]
    processes: dict[int, str]

    def is_running(self) -> bool:
        """Return whether all processes of the stack run, judged by pids and start times, without connecting to them."""
        return bool(self.processes) and all(process_start(pid) == began for pid, began in self.processes.items())


def default_environment() -> dict[str, str]:
    """Return this process's environment; if it names no server, add the variables of the running local stack."""
    if ENDPOINT_VARIABLES & os.environ.keys():
        return dict(os.environ)
    return {**os.environ, **running_stack_environment()}


def default_connections() -> Connections:
    from lakefeed.config.connections import Connections

    return Connections.from_environment(default_environment())


def running_stack_environment() -> dict[str, str]:
    """Return the variables of the local stack in the default home; an empty dictionary if the stack does not run."""
    try:
        stack = StackEnvironment.model_validate_json(stack_environment_file(default_home()).read_text("utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return {}
    return stack.environment if stack.is_running() else {}


def this_user() -> str:
    """Return the name of this process's user in the operating system; without a name, ``user`` and the user id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def default_home() -> Path:
    """Return ``LAKEFEED_HOME``, else ``$XDG_DATA_HOME/lakefeed``, else ``~/.local/share/lakefeed``."""
    if explicit := os.environ.get("LAKEFEED_HOME"):
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "lakefeed"


def measured_throughput() -> Path:
    """Return the file in which ``lakefeed-bench throughput`` stores its newest result."""
    return default_home() / "throughput.json"


def stack_environment_file(home: Path) -> Path:
    return home / "run" / "environment.json"


def boot_id() -> str | None:
    """Return an id that changes when this machine boots; None if the system has no such id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return None


def pid_namespace() -> str | None:
    """Return the id of this process's PID namespace; None if the system has no such id."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def process_start(pid: int) -> str | None:
    """Return a process's start time, which differs if its pid is reused; None if it has ended or is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # Field 2 is the name, in parentheses and with any characters. Field 3 is the state, 22 the start time.
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else fields[19]
    done = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = done.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


FOR_ALL, OWNER_ONLY = 0o644, 0o600


def write_whole(path: Path, text: str, *, overwrite: bool, mode: int = FOR_ALL) -> bool:
    """Write a file atomically, so that it is complete even after a power failure; create its folder if it is missing.

    Without ``overwrite``, return False and change nothing if the file exists; then only one of two concurrent writers
    gets True. With ``overwrite``, write directly into a device or pipe.
    """
    if overwrite and path.exists() and not path.is_file():
        # Write into a device or a pipe: a rename would replace, for example, /dev/null by a file.
        path.write_text(text, "utf-8")
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)  # mkstemp makes files that only this user can read.
        if overwrite:
            Path(temporary).replace(path)
            return True
        try:
            # A rename would replace a file that another process has just written; a link fails if the file exists.
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        return True
    except OSError as error:
        # Add the file's name, which some errors lack, for example that of a full disk.
        error.filename = str(path)
        raise
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()


def write_own_file(path: Path, text: str) -> None:
    """Write a file that only this user can read, and create its folder; raise OSError if that fails."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, text, overwrite=True, mode=OWNER_ONLY)


def read_own_file(path: Path, *, most_bytes: int = 1 << 26) -> str | None:
    """Read a file; return None if it does not exist, if other users may read it, or if it is too large."""
    try:
        stat = path.stat()
        if stat.st_uid != os.getuid() or stat.st_mode & 0o077 or stat.st_size > most_bytes:
            return None
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None


def packaged_root(name: str) -> Path:
    """Return the folder that contains one of ``PACKAGED``: the installed package, or else the repository."""
    package = Path(__file__).resolve().parents[1]
    for root in (package, package.parents[1]):
        if (root / name).exists():
            # A clone may lack the generated reference pages, which are not in git: generate them.
            if name == "docs" and (root / "tools" / "references.py").exists():
                subprocess.run([sys.executable, "-m", "tools.references"], cwd=root, capture_output=True, check=False)
            return root
    raise ResourceMissing(f"the package has no {name}", where=str(package), hint="install lakefeed's wheel")
