"""The class-data archive that a JVM reads or writes; an archive gets its final name when it is complete."""

import atexit
import os
import subprocess
from pathlib import Path

import pytest

from lakefeed.clients.spark.class_archive import CLASS_PATH, OPTIONS, VARIABLE, ClassArchive


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a cache, a Java and a Spark in a folder, Java and Spark with one jar each."""
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    for file in ("java/bin/java", "java/lib/modules", "spark/jars/core.jar", "own.jar"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    return tmp_path


def archive(machine: Path) -> ClassArchive | None:
    conf = {CLASS_PATH: str(machine / "own.jar")}
    return ClassArchive.of(conf, java=machine / "java/bin/java", spark_home=machine / "spark")


def written(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the archive that a JVM would write for the current jars."""
    monkeypatch.setenv(VARIABLE, "write")
    found = archive(machine)
    monkeypatch.delenv(VARIABLE)
    assert found is not None
    assert found.writes
    found.prepare()
    return found.path


def test_the_jvm_reads_only_an_archive_written_with_the_same_jars(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive(machine) is None
    path = written(machine, monkeypatch)
    path.write_text("classes")
    found = archive(machine)
    assert found is not None
    assert (found.path, found.writes) == (path, False)
    options = found.added_to({OPTIONS: "-Dmine=1"})[OPTIONS].split()
    assert (options[0], options[-1]) == (f"-XX:SharedArchiveFile={path}", "-Dmine=1")
    for changed in ("own.jar", "spark/jars/core.jar", "java/lib/modules"):
        before = (machine / changed).stat()
        (machine / changed).write_text("another")
        assert archive(machine) is None, changed
        written(machine, monkeypatch).write_text("classes")
        assert archive(machine) is not None
        (machine / changed).write_text(changed)
        os.utime(machine / changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    monkeypatch.setenv(VARIABLE, "off")
    assert archive(machine) is None


def test_a_session_on_a_cluster_uses_no_archive(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "write")
    assert ClassArchive.of({}, java=machine / "java/bin/java", spark_home=machine / "spark") is None


def test_no_archive_is_used_if_a_jar_is_missing(machine: Path) -> None:
    (machine / "own.jar").unlink()
    assert archive(machine) is None


@pytest.mark.parametrize(("script", "is_there"), [('printf classes > "$0"', True), ("exit 1", False)])
def test_an_archive_gets_its_name_only_if_the_jvm_has_completed_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch, script: str, is_there: bool
) -> None:
    finishers: list[object] = []
    monkeypatch.setattr(atexit, "register", finishers.append)
    monkeypatch.setenv(VARIABLE, "write")
    found = archive(machine)
    assert found is not None
    found.prepare()
    part = found.added_to({})[OPTIONS].split()[0].partition("=")[2]
    jvm = subprocess.Popen(["/bin/sh", "-c", f"read line; {script}", part], stdin=subprocess.PIPE)
    found.finish_at_exit(jvm)
    assert not found.path.exists()
    [finish] = finishers
    finish()  # type: ignore[operator]
    assert found.path.exists() is is_there
    assert not Path(part).exists()


def test_writing_removes_the_oldest_archives(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(machine, monkeypatch).parent
    for number in range(5):
        (folder / f"{number}.jsa").write_text("")
        os.utime(folder / f"{number}.jsa", (number, number))
    written(machine, monkeypatch)
    assert sorted(file.name for file in folder.iterdir()) == ["3.jsa", "4.jsa"]
