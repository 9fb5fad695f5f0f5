"""Build programs with Go; a small script stands in for ``go``."""

from pathlib import Path

import pytest

from lakefeed.errors import DownloadError, MissingExtra, install_command
from lakefeed_local.servers import GoProgram

PROGRAM = GoProgram(name="tool", package="example.org/tool", version="v1.2.3")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "cache"))
    return tmp_path


def go_that(folder: Path, script: str) -> None:
    file = folder / "bin" / "go"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_a_program_is_built_once(folder: Path) -> None:
    go_that(folder, f'echo "$@" >> {folder}/calls; mkdir -p "$GOBIN"; echo made > "$GOBIN/tool"')
    PROGRAM.build(log=folder / "log")
    PROGRAM.build(log=folder / "log")
    assert PROGRAM.path.read_text() == "made\n"
    assert (folder / "calls").read_text() == "install example.org/tool@v1.2.3\n"


def test_a_local_module_is_built_in_its_folder(folder: Path) -> None:
    go_that(folder, f'echo "$PWD $@" > {folder}/calls; mkdir -p "$GOBIN"; echo made > "$GOBIN/tool"')
    module = folder / "module"
    module.mkdir()
    GoProgram(name="tool", package="./...", version="v1.2.3", module=module, flags=("-trimpath",)).build(
        log=folder / "log"
    )
    assert (folder / "calls").read_text() == f"{module} install -trimpath ./...\n"


def test_a_failed_build_leaves_no_program(folder: Path) -> None:
    go_that(folder, 'mkdir -p "$GOBIN"; echo half > "$GOBIN/tool"; echo "no such module" >&2; exit 1')
    with pytest.raises(DownloadError, match=r"ends with:\n  \| no such module") as caught:
        PROGRAM.build(log=folder / "log")
    assert caught.value.where == str(folder / "log")
    assert not PROGRAM.path.exists()
    go_that(folder, 'mkdir -p "$GOBIN"; echo made > "$GOBIN/tool"')
    PROGRAM.build(log=folder / "log")
    assert PROGRAM.path.read_text() == "made\n"


def test_the_error_without_go_names_the_extra_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(folder))
    with pytest.raises(MissingExtra) as caught:
        PROGRAM.build(log=folder / "log")
    assert caught.value.hint == install_command("go")
