"""``make audit``: write a bill of materials of the three lock files, and find known vulnerabilities of its components.

Writes ``build/sbom.cdx.json`` (CycloneDX 1.6), and looks its components up in

1. ``tools/advisories.json``: earlier advisories, with the decisions about them;
2. OSV for packages and jars, and PyPI's advisories for Python packages, unless ``--offline``.

Exit status: 0 without a new advisory, 1 with an advisory that needs a decision, 3 if a service did not answer.
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
    """An advisory about a component, and the reason for which it was accepted; None if that is not decided yet."""

    part: Component
    advisory: str
    accepted: str | None


def python_packages(lock: Path) -> Iterator[Component]:
    """Yield the packages in ``uv.lock`` that come from a registry."""
    for package in tomllib.loads(lock.read_text())["package"]:
        if "registry" in package["source"]:
            yield Component("pypi", package["name"], package["version"], None, "uv.lock")


def scripts(lock: Path) -> Iterator[Component]:
    """Yield the packages in ``npm.lock``."""
    for name, entry in json.loads(lock.read_text()).items():
        yield Component("npm", name, entry["version"], None, "npm.lock")


def checked(text: str) -> str:
    """Return a bill of materials that conforms to CycloneDX's schema; otherwise raise ValueError."""
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is not valid: {error}")
    return text


def known(parts: Iterable[Component], advisories: list[dict[str, Any]]) -> list[Finding]:
    """Return the advisories whose name pattern and version ranges match a component."""
    return [
        Finding(part, " ".join(each["ids"]), each.get("accepted", {}).get(part.where.partition(":")[0]))
        for part in parts
        for each in advisories
        if part.kind == each["kind"]
        and re.fullmatch(each["name"], part.name)
        and any(_order(low) <= _order(part.version) < _order(high) for low, high in each["vulnerable"])
    ]


def queried(parts: list[Component], accepted: dict[str, str]) -> tuple[list[Finding], list[str]]:
    """Return the services' advisories, and the errors of services that did not answer."""
    findings, failures = [], []
    try:
        query = json.dumps({"queries": [{"package": {"purl": part.purl}} for part in parts]}).encode()
        answer = _json_of(urllib.request.Request(OSV, query, {"Content-Type": "application/json"}))
        for part, result in zip(parts, answer["results"], strict=True):
            findings += [Finding(part, each["id"], accepted.get(each["id"])) for each in result.get("vulns", [])]
    except (OSError, KeyError, ValueError) as error:
        failures.append(f"OSV (packages and jars): {error}")
    try:
        for part in (each for each in parts if each.kind == "pypi"):
            answer = _json_of(PYPI.format(name=part.name, version=part.version))
            findings += [Finding(part, each["id"], accepted.get(each["id"])) for each in answer["vulnerabilities"]]
    except (OSError, KeyError, ValueError) as error:
        failures.append(f"PyPI (Python packages): {error}")
    return findings, failures


def parts_of_the_project() -> list[Component]:
    """Return the components in the three lock files, and the jars in PySpark."""
    jars = {*jars_of(read_lock().artifacts), *bundled_jars()}
    return sorted(
        {*python_packages(ROOT / "uv.lock"), *jars, *scripts(ROOT / "tools" / "npm.lock")},
        key=lambda part: (part.kind, part.name, part.version, part.where),
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:4])


def _json_of(request: str | urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        return json.load(response)


def main() -> int:
    """Write the bill of materials, print the advisories, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--offline", action="store_true", help="query no service")
    options = parser.parse_args()
    parts = parts_of_the_project()
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(checked(bill(parts)))
    print(f"{SBOM.relative_to(ROOT)}: {len(parts)} components, valid CycloneDX 1.6")
    advisories = json.loads(ADVISORIES.read_text())
    findings = known(parts, advisories)
    failures: list[str] = []
    if not options.offline:
        accepted = {
            name: why for each in advisories for name in each["ids"] for why in each.get("accepted", {}).values()
        }
        more, failures = queried(parts, accepted)
        findings += more
    for each in sorted(findings, key=lambda finding: finding.accepted is not None):
        print(f"{'accepted' if each.accepted else 'DECIDE'}: {each.advisory} in {each.part.purl} ({each.part.where})")
        if each.accepted:
            print(f"  {each.accepted}")
    for failure in failures:
        print(f"no answer: {failure}")
    if any(each.accepted is None for each in findings):
        print("update the component (docs/jars.md), or write into tools/advisories.json why to accept the advisory")
        return 1
    print(f"{len(findings)} advisories, all accepted" + ("; newer advisories are unknown" if failures else ""))
    return 3 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
