"""Write a bill of materials (CycloneDX 1.6) of the packages and jars in lock files or on this machine."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lakefeed.clients.spark.jars import Artifact

DPKG_STATUS = Path("/var/lib/dpkg/status")
BUNDLED = "pyspark"


@dataclass(frozen=True, order=True)
class Component:
    """A package or a jar.

    Attributes:
        kind: ``pypi``, ``maven``, ``npm`` or ``deb``.
        name: the name in the registry; ``group/artifact`` for jars.
        sha256: the file's hash, if a lock file has it.
        where: the groups of the lock file that have the jar, or ``pyspark`` for the jars in PySpark.
    """

    kind: str
    name: str
    version: str
    sha256: str | None
    where: str

    @property
    def purl(self) -> str:
        """The package URL, by which vulnerability scanners identify the component."""
        name = f"debian/{self.name}" if self.kind == "deb" else self.name
        return f"pkg:{self.kind}/{quote(name)}@{quote(self.version, safe=':')}"


def bill(parts: Iterable[Component]) -> str:
    components = [_component(part) for part in sorted(parts, key=lambda part: (part.kind, part.name, part.where))]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def _component(part: Component) -> dict[str, Any]:
    group, _, name = part.name.rpartition("/")
    return {
        "type": "library",
        "bom-ref": f"{part.purl}#{part.where}",
        **({"group": group} if group else {}),
        "name": name,
        "version": part.version,
        **({"hashes": [{"alg": "SHA-256", "content": part.sha256}]} if part.sha256 else {}),
        "purl": part.purl,
        "properties": [{"name": "lakefeed:needed-by", "value": part.where}],
    }


def jars_of(artifacts: Iterable[Artifact]) -> Iterator[Component]:
    for artifact in artifacts:
        group, name, *_, version = artifact.coordinate.split(":")
        needed_by = f"jars.lock: {', '.join(artifact.groups)}"
        yield Component("maven", f"{group}/{name}", version, artifact.sha256, needed_by)


def requirements_of(text: str) -> Iterator[Component]:
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, flags=re.MULTILINE):
        yield Component("pypi", name, version, None, "requirements.txt")


def bundled_jars(folder: Path | None = None) -> Iterator[Component]:
    """Yield PySpark's jars as components; the name is from a jar's Maven metadata, or else from its file name."""
    spec = find_spec(BUNDLED)
    folder = folder or (Path(spec.origin).parent / "jars" if spec and spec.origin else None)
    # Skip links: in an image, they point to the locked jars, which ``jars_of`` lists.
    for jar in sorted(jar for jar in folder.glob("*.jar") if not jar.is_symlink()) if folder else ():
        with zipfile.ZipFile(jar) as archive:
            found = [
                re.fullmatch(r"META-INF/maven/([^/]+)/([^/]+)/pom\.properties", each) for each in archive.namelist()
            ]
        stem = re.fullmatch(r"(.+?)-(\d.*)", jar.stem)
        name, version = stem.groups() if stem else (jar.stem, "0")
        groups = [each[1] for each in found if each and each[2] == name]
        yield Component("maven", f"{groups[0]}/{name}" if groups else name, version, None, BUNDLED)


def without_replaced(bundled: Iterable[Component], locked: Iterable[Component]) -> list[Component]:
    """Return the bundled jars, except jars that an image replaces by a locked jar of the same name."""
    replaced = {part.name.rpartition("/")[2] for part in locked}
    return [part for part in bundled if part.name.rpartition("/")[2] not in replaced]


def installed(artifacts: Iterable[Artifact], spark_jars: Path) -> Iterator[Component]:
    """Yield the components of this machine: Debian packages, Python packages, and the locked jars that exist here."""
    for stanza in DPKG_STATUS.read_text().split("\n\n") if DPKG_STATUS.exists() else ():
        fields = dict(re.findall(r"^(Package|Version|Status): (.+)$", stanza, flags=re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield Component("deb", fields["Package"], fields["Version"], None, "Debian")
    for package in distributions():
        yield Component("pypi", package.metadata["Name"], package.version, None, "installed")
    yield from jars_of(artifact for artifact in artifacts if artifact.path.is_file())
    yield from bundled_jars(spark_jars)
