"""Run a process in a root file system: ``unshare --mount --pid --fork python in_root.py SPECIFICATION``.

The specification is JSON, written by ``tests.support.dockerfile.Image.command``. This is a separate program without
imports from the tests, because it becomes the first process of its process namespace.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38


def main(specification: str) -> None:
    """Mount, change the root and the user, and replace this process by the command."""
    asked = json.loads(specification)
    root = Path(asked["root"])
    mount("--make-rprivate", "/")
    mount("--bind", root, root)
    places = {root / inside.lstrip("/"): Path(outside) for inside, outside in asked["mounts"].items()}
    for place, outside in places.items():
        create(place, outside)  # A container runtime creates mount points too, before the root becomes read-only.
    for name in ("proc", "dev"):
        (root / name).mkdir(exist_ok=True)
    if not asked["writable"]:
        mount("-o", "remount,ro,bind", root)
    mount("-t", "proc", "proc", root / "proc")
    mount("--rbind", "/dev", root / "dev")
    for place, outside in places.items():
        create(place, outside)  # An earlier step of this loop may have mounted the folder of the mount point.
        mount("--bind", outside, place)
    uid, gid = numbers(asked["user"])
    os.chroot(root)
    os.chdir(asked["folder"])
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if uid and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    os.execvpe(asked["arguments"][0], asked["arguments"], asked["environment"])


def numbers(user: str) -> tuple[int, int]:
    """Return uid and gid of an image's USER, which must be root or numbers: a cluster cannot resolve other names."""
    uid, _, gid = ("0:0" if user == "root" else user).partition(":")
    return int(uid), int(gid)


def create(place: Path, like: Path) -> None:
    """Create a mount point, a folder or an empty file, if it does not exist."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        if like.is_dir():
            place.mkdir()
        else:
            place.touch()


def mount(*arguments: object) -> None:
    """Call the command ``mount``."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
