"""Run Prometheus and promtool from Debian's package, downloaded once and unpacked without root."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.debian import unpack_packages
from tests.support.servers.process import answers, running


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus server."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of Prometheus' API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def until(self, expression: str, *, seconds: float = 60) -> list[dict[str, Any]]:
        """Wait until an expression has series; return them."""
        deadline = time.monotonic() + seconds
        while not (found := self.query(expression)):
            assert time.monotonic() < deadline, expression
            time.sleep(0.3)
        return found


def unpacked_prometheus() -> Path:
    """Return the folder of ``prometheus`` and ``promtool``."""
    return unpack_packages("prometheus") / "usr/bin"


def promtool(*arguments: str | Path, stdin: str | None = None) -> str:
    """Run promtool, which must succeed; return its output."""
    command = [unpacked_prometheus() / "promtool", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def prometheus(folder: Path, *, scrape: Sequence[dict[str, Any]], rules: Path) -> Iterator[Prometheus]:
    """Run a server that scrapes once a second, until the block ends."""
    port = choose_free(avoid=())
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": list(scrape),
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(settings))
    promtool("check", "config", file)
    url = f"http://{LOOPBACK}:{port}"

    command: list[str | Path] = [
        unpacked_prometheus() / "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--log.level=warn",
    ]
    with running(command, log=folder / "prometheus.log", ready=lambda: answers(f"{url}/-/ready")):
        yield Prometheus(url)
