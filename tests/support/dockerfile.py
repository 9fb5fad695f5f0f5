"""Build an image from a Dockerfile in root file systems, and run it, on machines without a container engine.

Few instructions are supported. Any other instruction is an error, so no step is skipped silently. Needs Linux and root.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

IN_ROOT = Path(__file__).with_name("in_root.py")
_FORMS = {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "LABEL"}
_PAIR = re.compile(r'([A-Za-z0-9_.]+)=("(?:[^"\\]|\\.)*"|\S*)\s*')


@dataclass(frozen=True)
class Image:
    """A root file system, and the settings that a container runtime has for it."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    user: str = "root"
    folder: str = "/"
    entrypoint: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def command(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        mounts: Mapping[str, Path] | None = None,
        writable: bool = False,
        user: str | None = None,
    ) -> list[str]:
        """Return the command that runs a process in the image as the image's user; only the mounts are writable."""
        specification = {
            "root": str(self.root),
            "arguments": arguments,
            "environment": {**self.environment, **(environment or {})},
            "mounts": {inside: str(outside) for inside, outside in (mounts or {}).items()},
            "writable": writable,
            "user": user or self.user,
            "folder": self.folder,
        }
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*unshare, sys.executable, str(IN_ROOT), json.dumps(specification)]


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile with their arguments."""
    joined = re.sub(r"\\\n", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    for line in filter(str.strip, joined.splitlines()):
        keyword, _, arguments = line.strip().partition(" ")
        assert keyword in _FORMS, f"this Dockerfile has an instruction that the test does not execute: {line}"
        yield keyword, arguments.strip()


def build(
    file: Path, *, images: Mapping[str, Image], folder: Path, site: Mapping[str, str], mounts: Mapping[str, Path]
) -> Image:
    """Execute the steps of a Dockerfile, whose folder is the context; return the image of the last stage.

    Args:
        file: the Dockerfile.
        images: the image of each name that FROM refers to.
        folder: the folder for the root file systems of the stages.
        site: variables for RUN that depend on this network: proxies, certificates, mirrors.
        mounts: files for RUN that depend on this network.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stages: dict[str, Image] = {}
    arguments: dict[str, str] = {}
    image: Image | None = None
    name = ""
    for keyword, text in instructions(file.read_text()):
        if keyword == "ARG":
            assert image is None, "an ARG of a stage"
            key, _, value = text.partition("=")
            arguments[key] = value
        elif keyword == "FROM":
            source, _, alias = _with_variables(text, arguments).partition(" AS ")
            name = alias or "last"
            image = _begin(source, {**images, **stages}, folder / name)
        else:
            assert image is not None, f"{keyword} before FROM"
            image = _step(image, keyword, text, context=file.parent, stages=stages, site=site, mounts=mounts)
        if image is not None:
            stages[name] = image
    assert image is not None
    return image


def _begin(source: str, images: Mapping[str, Image], root: Path) -> Image:
    if source == "scratch":
        root.mkdir(parents=True)
        return Image(root, environment={})
    subprocess.run(["cp", "--archive", "--reflink=auto", images[source].root, root], check=True)
    return replace(images[source], root=root)


def _step(
    image: Image,
    keyword: str,
    text: str,
    *,
    context: Path,
    stages: Mapping[str, Image],
    site: Mapping[str, str],
    mounts: Mapping[str, Path],
) -> Image:
    if keyword == "RUN":
        arguments = json.loads(text) if text.startswith("[") else ["/bin/sh", "-c", text]
        command = image.command(*arguments, environment=site, mounts=mounts, writable=True)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"RUN {text}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    elif keyword == "COPY":
        _copy(image, text, context=context, stages=stages)
    elif keyword in ("ENV", "LABEL"):
        assert re.sub(_PAIR, "", text) == "", f"{keyword} {text}"
        pairs = {key: _with_variables(value.strip('"'), image.environment) for key, value in _PAIR.findall(text)}
        if keyword == "ENV":
            return replace(image, environment={**image.environment, **pairs})
        return replace(image, labels={**image.labels, **pairs})
    elif keyword == "USER":
        return replace(image, user=text)
    elif keyword == "WORKDIR":
        (image.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return replace(image, folder=text)
    elif keyword == "ENTRYPOINT":
        return replace(image, entrypoint=tuple(json.loads(text)))
    return image


def _copy(image: Image, text: str, *, context: Path, stages: Mapping[str, Image]) -> None:
    *sources, target = text.split()
    root = context
    if sources[0].startswith("--from="):
        root = stages[sources.pop(0).removeprefix("--from=")].root
    assert not any(source.startswith("--") for source in sources), f"COPY {text}"
    to = image.root / target.lstrip("/")
    for source in sources:
        taken = root / source.lstrip("/")
        if taken.is_dir():  # Copy the folder's content, not the folder, as container builders do.
            to.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", "--reflink=auto", f"{taken}/.", to], check=True)
        elif target.endswith("/"):
            to.mkdir(parents=True, exist_ok=True)
            shutil.copy(taken, to)
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(taken, to)


def _with_variables(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", lambda found: values[found[1]], text)


class Container:
    """A running process of an image, with its children."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the container's first process, as a container runtime does."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(children[0]), number)
