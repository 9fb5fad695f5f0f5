"""``make audit``: a bill of materials of the three locks, and which known vulnerabilities are in it.

Writes ``build/sbom.cdx.json`` (CycloneDX 1.6), validated against the schema of CycloneDX, and compares it with

1. ``tools/advisories.json``, which is always there: what was found before, with what was decided;
2. the service of pip-audit for packages of Python, and OSV for packages and jars, where the network reaches them.

Exit status: 0 nothing new, 1 something to decide, 3 nothing found but a service could not be asked. ``--offline`` asks
none and does not count that.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "build" / "sbom.cdx.json"
ADVISORIES = ROOT / "tools" / "advisories.json"
OSV = "https://api.osv.dev/v1/querybatch"
PYPI = "https://pypi.org/pypi/{name}/{version}/json"
TIMEOUT_SECONDS = 10
BUNDLED = "pyspark"


@dataclass(frozen=True, order=True)
class Part:
    """One thing that is shipped, fetched or used.

    Attributes:
        kind: ``pypi``, ``maven`` or ``npm``.
        name: as its registry calls it; ``group/artifact`` for jars.
        version: its version.
        sha256: of the file, where the lock has it.
        where: what needs it: a lock's groups, or PySpark, which brings jars of its own.
    """

    kind: str
    name: str
    version: str
    sha256: str | None
    where: str

    @property
    def purl(self) -> PackageURL:
        """The package URL, by which scanners know it."""
        namespace, _, name = self.name.rpartition("/")
        return PackageURL(type=self.kind, namespace=namespace or None, name=name, version=self.version)


@dataclass(frozen=True)
class Finding:
    """An advisory that a part comes under."""

    part: Part
    advisory: str
    decided: str | None
    """Why it is accepted; None if it is undecided."""


def python_packages(lock: Path) -> Iterator[Part]:
    """The packages of ``uv.lock``, this project left out."""
    for package in tomllib.loads(lock.read_text())["package"]:
        if "registry" in package["source"]:
            yield Part("pypi", package["name"], package["version"], None, "uv.lock")


def locked_jars(lock: Path) -> Iterator[Part]:
    """The jars of ``jars.lock``."""
    for artifact in json.loads(lock.read_text())["artifacts"]:
        group, name, *_, version = artifact["coordinate"].split(":")
        yield Part(
            "maven", f"{group}/{name}", version, artifact["sha256"], f"jars.lock: {', '.join(artifact['groups'])}"
        )


def scripts(lock: Path) -> Iterator[Part]:
    """The packages of ``npm.lock``: the page's chart library, and what tests use."""
    for name, entry in json.loads(lock.read_text()).items():
        yield Part("npm", name, entry["version"], None, "npm.lock")


def bundled_jars() -> Iterator[Part]:
    """The jars that PySpark brings, by what is written inside them, or by their names."""
    spec = find_spec(BUNDLED)
    for jar in sorted(Path(spec.origin).parent.glob("jars/*.jar")) if spec and spec.origin else ():
        with zipfile.ZipFile(jar) as archive:
            found = [
                re.fullmatch(r"META-INF/maven/([^/]+)/([^/]+)/pom\.properties", each) for each in archive.namelist()
            ]
        stem = re.fullmatch(r"(.+?)-(\d.*)", jar.stem)
        name, version = stem.groups() if stem else (jar.stem, "0")
        groups = [each[1] for each in found if each and each[2] == name]
        yield Part("maven", f"{groups[0]}/{name}" if groups else name, version, None, BUNDLED)


def bill(parts: Iterable[Part]) -> str:
    """The bill of materials.

    Raises:
        ValueError: it is not what the schema of CycloneDX asks for.
    """
    bom = Bom()
    for part in parts:
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else []
        bom.components.add(
            Component(
                type=ComponentType.LIBRARY,
                group=part.purl.namespace,
                name=part.purl.name,
                version=part.version,
                purl=part.purl,
                bom_ref=f"{part.purl}#{part.where}",
                hashes=hashes,
                properties=[Property(name="lakefeed:needed-by", value=part.where)],
            )
        )
    text = str(JsonV1Dot6(bom).output_as_string(indent=1))
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is not valid: {error}")
    return text


def known(parts: Iterable[Part], advisories: list[dict[str, Any]]) -> list[Finding]:
    """Find the advisories of ``tools/advisories.json`` for the parts."""
    return [
        Finding(part, " ".join(each["ids"]), each.get("accepted", {}).get(part.where.partition(":")[0]))
        for part in parts
        for each in advisories
        if part.kind == each["kind"]
        and re.fullmatch(each["name"], part.name)
        and any(_order(low) <= _order(part.version) < _order(high) for low, high in each["vulnerable"])
    ]


def asked(parts: list[Part], decided: dict[str, str]) -> tuple[list[Finding], list[str]]:
    """Ask the services for advisories; return them, and the services that did not answer."""
    findings, silent = [], []
    try:
        answer = _post(OSV, {"queries": [{"package": {"purl": str(part.purl)}} for part in parts]})
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


def parts_of_the_project() -> list[Part]:
    """All parts, from the three locks and from PySpark."""
    jars = locked_jars(ROOT / "src" / "lakefeed" / "jars.lock")
    return sorted(
        {*python_packages(ROOT / "uv.lock"), *jars, *bundled_jars(), *scripts(ROOT / "tools" / "npm.lock")},
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
    """Write the bill, compare, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--offline", action="store_true", help="ask no service")
    options = parser.parse_args()
    parts = parts_of_the_project()
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(bill(parts))
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
