"""The files of ``lakefeed deploy image``: Dockerfiles, fixed versions, the bill of materials, wheels."""

import json
import zipfile
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from lakefeed.cli.main import root
from lakefeed.clients.spark import jars
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed_deploy.image import GROUPS, ImageFiles, write_image_files, write_wheels
from lakefeed_deploy.image.bill import Component, jars_of
from tests.support.dockerfile import instructions
from tools import lock_requirements

DIGEST = f"debian@sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> ImageFiles:
    folder = tmp_path_factory.mktemp("image")
    own = folder / "own.txt"
    own.write_text("scikit-learn==1.8.0\n")
    return write_image_files(folder / "image", base_image=DIGEST, requirements=own)


def test_the_command_writes_all_files_that_the_dockerfiles_copy(written: ImageFiles) -> None:
    assert written.is_pinned
    assert set(written.files) == {file.name for file in written.folder.iterdir()}
    copied = {"Dockerfile", "Dockerfile.spark", "sbom.cdx.json"}
    for name in ("Dockerfile", "Dockerfile.spark"):
        steps = list(instructions((written.folder / name).read_text()))
        sources = [step[1].split()[:-1] for step in steps if step[0] == "COPY"]
        copied |= {source for each in sources if not each[0].startswith("--from") for source in each}
    assert copied == set(written.files)
    assert ("ARG", f"BASE_IMAGE={DIGEST}") in instructions((written.folder / "Dockerfile").read_text())
    assert (written.folder / "own-requirements.txt").read_text() == "scikit-learn==1.8.0\n"
    assert (written.folder / "entrypoint.sh").stat().st_mode & 0o111 == 0o111


def test_the_requirements_without_spark_lack_only_spark(written: ImageFiles) -> None:
    folder = written.folder
    packages, others = (
        {line.split("==")[0]: line for line in (folder / name).read_text().splitlines() if "==" in line}
        for name in ("requirements.txt", "requirements-without-spark.txt")
    )
    assert packages.keys() - others.keys() == {"pyspark", "py4j"}
    assert all(line.endswith("\\") for line in packages.values())
    counted = [
        sum(1 for line in (folder / name).read_text().splitlines() if not line.startswith((" ", "#")))
        for name in ("requirements.txt", "requirements-without-spark.txt")
    ]
    assert counted == [len(packages), len(others)]


def test_the_bill_is_valid_and_has_all_fixed_versions(written: ImageFiles) -> None:
    text = (written.folder / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    parts = json.loads(text)["components"]
    purls = {part["purl"] for part in parts}
    assert f"pkg:pypi/pyspark@{pyspark.__version__}" in purls
    assert "pkg:maven/org.lz4/lz4-java@1.8.0" not in purls
    assert {part["name"]: part["version"] for part in parts}["lz4-java"] == "1.11.2"
    locked = [part for part in parts if part["properties"][0]["value"].startswith("jars.lock")]
    assert len(locked) == len(jars.read_lock().of((*GROUPS, "delta", "jdbc")))
    assert all(part["hashes"][0]["alg"] == "SHA-256" for part in locked)


@pytest.mark.parametrize(
    ("kind", "name", "version"),
    [
        ("maven", "org.lz4/lz4-java", "1.8.0"),
        ("deb", "libstdc++6", "1:12.2.0-14+deb12u1~x"),
        ("npm", "@scope/name", "1.0"),
        ("pypi", "click", "8.5.1"),
    ],
)
def test_a_package_url_has_the_specified_form(kind: str, name: str, version: str) -> None:
    purl = PackageURL.from_string(Component(kind, name, version, None, "test").purl)
    namespace = f"debian/{name}" if kind == "deb" else name
    assert (purl.type, "/".join(filter(None, (purl.namespace, purl.name))), purl.version) == (kind, namespace, version)


@pytest.mark.waits
def test_a_locked_jar_replaces_sparks_jar_of_the_same_classes() -> None:
    # Java reads the jars of a folder in any order, so each class should be in only one jar.

    def classes(jar: Path) -> set[str]:
        names = zipfile.ZipFile(jar).namelist()
        return {name for name in names if name.endswith(".class") and "META-INF" not in name and "-info" not in name}

    bundled = {jar: classes(jar) for jar in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    locked = {artifact.path: classes(artifact.path) for artifact in jars.read_lock().of(("spark",))}
    shared = {
        (own.name.rpartition("-")[0], theirs.name.rpartition("-")[0])
        for own, names in locked.items()
        for theirs, others in bundled.items()
        # A single common class is allowed, because several of Spark's own jars have the same empty class.
        if len(names & others) > 1
    }
    assert shared == {("lz4-java", "lz4-java"), ("iceberg-spark-runtime-4.1_2.13", "jts-core")}
    names = {part.name.rpartition("/")[2] for part in jars_of(jars.read_lock().of((*GROUPS, "delta", "jdbc")))}
    assert {jar.name for jar in bundled if jar.name.rpartition("-")[0] in names} == {"lz4-java-1.8.0.jar"}


def test_the_requirements_files_are_up_to_date() -> None:
    for path, text in lock_requirements.FILES.items():
        assert path.read_text() == text(), f"{path.name} is out of date: make docs"


def test_a_wheel_has_the_package_and_a_complete_list_of_its_files(written: ImageFiles, tmp_path: Path) -> None:
    path = next(written.folder.glob("lakefeed-*.whl"))
    first = path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        record = wheel.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert {line.split(",")[0] for line in record.splitlines()} == names
    assert {"lakefeed/cli/main.py", "lakefeed/jars.lock", "lakefeed/examples/taxi/pipeline.yaml"} <= names
    assert not [name for name in names if "__pycache__" in name]
    assert write_wheels(tmp_path)[0].read_bytes() == first


def test_an_invalid_image_and_missing_requirements_are_refused(tmp_path: Path) -> None:
    for wrong in ("debian:bookworm@sha256:123", "Debian", "debian AS build\nRUN x", ""):
        with pytest.raises(ConfigError, match="is not the name of an image") as refused:
            write_image_files(tmp_path / "image", base_image=wrong)
        assert refused.value.where == "--base-image"
    with pytest.raises(ResourceMissing, match="cannot be read"):
        write_image_files(tmp_path / "image", requirements=tmp_path / "none.txt")
    assert not (tmp_path / "image").exists()


@pytest.mark.waits
def test_the_command_reports_a_base_image_without_a_digest(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["deploy", "image", "--to", str(tmp_path / "i")])
    assert done.exit_code == 0
    assert "debian:bookworm-slim has no digest" in done.output


def test_jars_are_copied_from_the_image_or_else_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = jars.read_lock().of(("spark",))[:2]
    installed = tmp_path / jars.artifact_path(first.coordinate)
    installed.parent.mkdir(parents=True)
    installed.touch()
    monkeypatch.setenv("LAKEFEED_JARS", str(tmp_path))
    assert first.path == installed
    assert first.state() == "damaged"
    assert second.path.is_relative_to(jars.cache_directory())
