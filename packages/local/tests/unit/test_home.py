"""The directory of a local stack stores values, restricts permissions, is erased, and is locked."""

import threading
from pathlib import Path

import pytest

from lakefeed.clients.environment import default_home
from lakefeed.errors import ConfigError
from lakefeed_local.home import Home, Memory

MEMORY = Memory(store="s3proxy", cluster_id="x", ports={"kafka": 1})


def test_later_commands_read_the_values_that_the_first_up_stored(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    assert home.recall() is None
    home.remember(MEMORY)
    assert home.recall() == MEMORY


def test_a_damaged_memory_file_is_an_error_with_a_hint(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.memory_file.write_text("{")
    with pytest.raises(ConfigError, match="store and ports cannot be read") as caught:
        home.recall()
    assert caught.value.hint == "remove the stack with its data, then start a new one: lakefeed local down --erase"


def test_credentials_are_generated_once_and_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    first = home.credentials()
    assert home.credentials() == first
    assert home.credentials_file.stat().st_mode & 0o777 == 0o600
    assert home.root.stat().st_mode & 0o777 == 0o700
    assert first.secret_key.get_secret_value() not in repr(first)
    other = Home(tmp_path / "other")
    other.make()
    assert other.credentials() != first


def test_erase_does_not_remove_other_files(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.remember(MEMORY)
    home.credentials()
    (home.root / "notes.txt").write_text("mine")
    home.erase()
    assert [path.name for path in home.root.iterdir()] == ["notes.txt"]
    (home.root / "notes.txt").unlink()
    home.make()
    home.erase()
    assert not home.root.exists()


def test_a_directory_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(ConfigError, match="already contains data, which no local stack has created"):
        Home(tmp_path).make()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_unwritable_home_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        Home(tmp_path / "file" / "home").make()


def test_a_command_that_waits_gets_a_valid_lock_even_if_the_directory_is_erased(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    events: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with home.locked():
            events.append("second")

    with home.locked():
        thread = threading.Thread(target=second)
        thread.start()
        waiting.wait(10)
        thread.join(0.2)
        events.append("first")
        home.erase()
    thread.join(10)
    assert events == ["first", "second"]
    assert home.is_ours()


def test_the_default_home_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    assert default_home() == tmp_path
    monkeypatch.delenv("LAKEFEED_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_home() == Path("/data/lakefeed")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_home() == Path.home() / ".local" / "share" / "lakefeed"
