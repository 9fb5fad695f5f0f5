"""Run Alertmanager from its Debian package, unpacked and not installed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.debian import unpack_packages
from tests.support.servers.process import answers, running

PACKAGE = "prometheus-alertmanager"
PROGRAM = "usr/bin/prometheus-alertmanager"
HOME = "/usr/share/prometheus/alertmanager"
CONFIGURATION = {"route": {"receiver": "nothing"}, "receivers": [{"name": "nothing"}]}


@dataclass(frozen=True)
class Alertmanager:
    """A running Alertmanager."""

    url: str

    def alerts(self, **labels: str) -> list[dict[str, Any]]:
        """Return the current alerts with these labels."""
        with urlopen(f"{self.url}/api/v2/alerts", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return [alert for alert in found if labels.items() <= alert["labels"].items()]


@contextmanager
def alertmanager(folder: Path) -> Iterator[Alertmanager]:
    """Run an Alertmanager that notifies no receiver, with its data in a folder."""
    configuration = folder / "alertmanager.yml"
    configuration.write_text(json.dumps(CONFIGURATION))
    url = f"http://{LOOPBACK}:{choose_free(avoid=())}"
    server = Alertmanager(url)
    root = unpack_packages(PACKAGE, prepare=_relocate)
    command: list[str | Path] = [
        "env",
        "-C",
        root / HOME.lstrip("/"),
        root / PROGRAM,
        f"--config.file={configuration}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    ]

    with running(command, log=folder / "alertmanager.log", ready=lambda: answers(f"{url}/-/ready")):
        yield server


def _relocate(root: Path) -> None:
    """In Debian's program, replace the path of templates by a path relative to the working directory."""
    program = root / PROGRAM
    here = "./" * (len(HOME) // 2)
    program.write_bytes(program.read_bytes().replace(HOME.encode(), here.encode()))
