"""A JVM reads a class-data archive, or writes the list of classes for one."""

import atexit
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakefeed.clients.spark.class_archive import CLASS_PATH, OPTIONS, VARIABLE, ClassArchive


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a cache, a Java and a Spark in a folder, the latter two with one jar each."""
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    for file in ("java/bin/java", "java/lib/modules", "spark/jars/core.jar", "own.jar"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    return tmp_path


@pytest.fixture(autouse=True)
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Collect the functions that the process registers for its end."""
    acts: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", lambda act, **given: acts.append(lambda: act(**given)))
    return acts


def archive(machine: Path) -> ClassArchive | None:
    conf = {CLASS_PATH: str(machine / "own.jar")}
    return ClassArchive.of(conf, java=machine / "java/bin/java", spark_home=machine / "spark")


def listing(machine: Path) -> ClassArchive:
    found = archive(machine)
    assert found is not None
    assert found.listed is not None
    return found


def test_the_jvm_reads_only_an_archive_of_the_same_jars(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = listing(machine).path
    path.write_text("classes")
    found = archive(machine)
    assert found == ClassArchive(path)
    options = found.added_to({OPTIONS: "-Dmine=1"})[OPTIONS].split()
    assert (options[0], options[-1]) == (f"-XX:SharedArchiveFile={path}", "-Dmine=1")
    for changed in ("own.jar", "spark/jars/core.jar", "java/lib/modules"):
        before = (machine / changed).stat()
        (machine / changed).write_text("another")
        assert listing(machine).path != path, changed
        (machine / changed).write_text(changed)
        os.utime(machine / changed, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert archive(machine) == found
    monkeypatch.setenv(VARIABLE, "write")
    assert listing(machine).path == path
    monkeypatch.setenv(VARIABLE, "off")
    assert archive(machine) is None


def test_an_unused_list_of_classes_is_removed_at_exit(machine: Path, at_exit: list[Callable[[], None]]) -> None:
    found = listing(machine)
    assert found.added_to({})[OPTIONS].split()[0] == f"-XX:DumpLoadedClassList={found.listed}"
    assert [*found.path.parent.iterdir()] == [found.listed]
    at_exit.pop()()
    assert not [*found.path.parent.iterdir()]


def test_no_archive_is_used_on_a_cluster_without_a_jar_or_without_a_writable_cache(machine: Path) -> None:
    assert ClassArchive.of({}, java=machine / "java/bin/java", spark_home=machine / "spark") is None
    (machine / "cache").write_text("a file where the folder belongs")
    assert archive(machine) is None
    (machine / "cache").unlink()
    (machine / "own.jar").unlink()
    assert archive(machine) is None
