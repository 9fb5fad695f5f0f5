"""After the first run, a shell process creates the archive of classes, and renames it when it is complete."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from lakefeed_deploy import archive_follower
from lakefeed_deploy.archive_follower import _make

# A stand-in for Java, which writes its arguments into the file of -XX:SharedArchiveFile.
JAVA = """#!/bin/sh
for each in "$@"; do case $each in -XX:SharedArchiveFile=*) printf '%s ' "$@" > "${each#*=}";; esac; done
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a stand-in for Java, and a folder for archives."""
    monkeypatch.setattr(archive_follower, "require_java", lambda: tmp_path / "java")
    (tmp_path / "java").write_text(JAVA)
    (tmp_path / "java").chmod(0o700)
    (tmp_path / "classes").mkdir()
    return tmp_path / "classes"


def end_of_a_run(folder: Path, name: str = "1") -> str:
    """Simulate the end of a run; return the content of the archive, or an empty text if there is none."""
    listed, archive = folder / f"a.{name}.list", folder / "a.jsa"
    listed.write_text("the classes")
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as jvm:
        _make(jvm, archive, listed, "the class path")
    until = time.monotonic() + 20
    while listed.with_suffix(".taken").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    return archive.read_text() if archive.exists() else ""


def test_the_archive_is_created_from_the_list_of_classes_and_the_class_path(folder: Path) -> None:
    made = end_of_a_run(folder)
    assert f"-XX:SharedClassListFile={folder}/a.1.taken " in made
    assert made.endswith("-cp the class path ")
    assert [*folder.iterdir()] == [folder / "a.jsa"]


def test_a_failed_attempt_is_not_repeated_for_a_day(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\nexit 1\n")
    assert not end_of_a_run(folder)
    (tmp_path / "java").write_text(JAVA)
    [begun] = folder.iterdir()
    assert not end_of_a_run(folder)
    os.utime(begun, (0, 0))
    assert end_of_a_run(folder)
    assert [*folder.iterdir()] == [folder / "a.jsa"]


def test_old_archives_and_files_of_killed_processes_are_removed(folder: Path) -> None:
    for number in range(5):
        (folder / f"{number}.jsa").write_text("")
        os.utime(folder / f"{number}.jsa", (number, number))
    (folder / "killed.list").write_text("")
    os.utime(folder / "killed.list", (0, 0))
    end_of_a_run(folder)
    assert sorted(file.name for file in folder.iterdir()) == ["3.jsa", "4.jsa", "a.jsa"]


def test_a_read_only_folder_is_no_error(folder: Path) -> None:
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as jvm:
        _make(jvm, folder / "missing" / "a.jsa", folder / "missing" / "a.1.list", "the class path")
        jvm.communicate()
