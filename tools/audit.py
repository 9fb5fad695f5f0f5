"""``make audit``: write a bill of materials of the three locks, and find known vulnerabilities in it.

Writes ``build/sbom.cdx.json`` (CycloneDX 1.6), validated against CycloneDX's schema, and compares it with

1. ``tools/advisories.json``, which is always available: earlier findings, with the decisions about them;
2. pip-audit's service for Python packages, and OSV for packages and jars, if the network reaches them.

Exit status: 0 nothing new, 1 something to decide, 3 nothing found but a service did not answer. ``--offline`` asks
no service, and does not count that as 3.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from lakefeed.clients.spark.jars import read_lock
from lakefeed_deploy.image.bill import Component, bill, bundled_jars, jars_of

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "build" / "sbom.cdx.json"
ADVISORIES = ROOT / "tools" / "advisories.json"
OSV = "https://api.osv.dev/v1/querybatch"
PYPI = "https://pypi.org/pypi/{name}/{version}/json"
TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class Finding:
    """An advisory about a component."""

    part: Component
    advisory: str
    decided: str | None
    """The reason for accepting it; None if that is undecided."""


def python_packages(lock: Path) -> Iterator[Component]:
    """Yield the packages of ``uv.lock``, without this project."""
    for package in tomllib.loads(lock.read_text())["package"]:
        if "registry" in package["source"]:
            yield Component("pypi", package["name"], package["version"], None, "uv.lock")


def locked_jars() -> Iterator[Component]:
    """Yield the jars of ``jars.lock``."""
    return jars_of(read_lock().artifacts)


def scripts(lock: Path) -> Iterator[Component]:
    """Yield the packages of ``npm.lock``: the page's chart library, and test tools."""
    for name, entry in json.loads(lock.read_text()).items():
        yield Component("npm", name, entry["version"], None, "npm.lock")


def checked(text: str) -> str:
    """Return a bill of materials after validating it.

    Raises:
        ValueError: it does not conform to CycloneDX's schema.
    """
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is not valid: {error}")
    return text


def known(parts: Iterable[Component], advisories: list[dict[str, Any]]) -> list[Finding]:
    """Find the advisories of ``tools/advisories.json`` for the parts."""
    return [
        Finding(part, " ".join(each["ids"]), each.get("accepted", {}).get(part.where.partition(":")[0]))
        for part in parts
        for each in advisories
        if part.kind == each["kind"]
        and re.fullmatch(each["name"], part.name)
        and any(_order(low) <= _order(part.version) < _order(high) for low, high in each["vulnerable"])
    ]


def asked(parts: list[Component], decided: dict[str, str]) -> tuple[list[Finding], list[str]]:
    """Query the services for advisories; return them, and the services that did not answer."""
    findings, silent = [], []
    try:
        answer = _post(OSV, {"queries": [{"package": {"purl": part.purl}} for part in parts]})
        for part, result in zip(parts, answer["results"], strict=True):
            findings += [Finding(part, each["id"], decided.get(each["id"])) for each in result.get("vulns", [])]
    except (OSError, KeyError, ValueError) as error:
        silent.append(f"OSV (packages and jars): {error}")
    try:
        for part in (each for each in parts if each.kind == "pypi"):
            said = _get(PYPI.format(name=part.name, version=part.version))
            findings += [Finding(part, each["id"], decided.get(each["id"])) for each in said["vulnerabilities"]]
    except (OSError, KeyError, ValueError) as error:
        silent.append(f"PyPI (packages of Python): {error}")
    return findings, silent


def parts_of_the_project() -> list[Component]:
    """Return all components of the three locks and of PySpark."""
    return sorted(
        {*python_packages(ROOT / "uv.lock"), *locked_jars(), *bundled_jars(), *scripts(ROOT / "tools" / "npm.lock")},
        key=lambda part: (part.kind, part.name, part.version, part.where),
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:4])


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        return json.load(response)


def _post(url: str, document: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        return json.load(response)


def main() -> int:
    """Write the bill, compare it, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--offline", action="store_true", help="ask no service")
    options = parser.parse_args()
    parts = parts_of_the_project()
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(checked(bill(parts)))
    print(f"{SBOM.relative_to(ROOT)}: {len(parts)} components, valid CycloneDX 1.6")
    advisories = json.loads(ADVISORIES.read_text())
    findings = known(parts, advisories)
    silent: list[str] = []
    if not options.offline:
        decided = {
            name: why for each in advisories for name in each["ids"] for why in each.get("accepted", {}).values()
        }
        more, silent = asked(parts, decided)
        findings += more
    for each in sorted(findings, key=lambda finding: finding.decided is not None):
        print(f"{'accepted' if each.decided else 'DECIDE'}: {each.advisory} in {each.part.purl} ({each.part.where})")
        if each.decided:
            print(f"  {each.decided}")
    for service in silent:
        print(f"not asked: {service}")
    if any(each.decided is None for each in findings):
        print("update it (docs/jars.md), or write down in tools/advisories.json why it is accepted")
        return 1
    print(f"{len(findings)} known, all decided" + ("; what is newer than the list is unknown" if silent else ""))
    return 3 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
