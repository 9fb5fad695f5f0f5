"""Find Java; instead of ``java``, small scripts print its version."""

from pathlib import Path

import pytest

from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed.errors import JavaError


def java(folder: Path, answer: str, *, status: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {status}\n")
    script.chmod(0o755)
    return script


def version(text: str) -> str:
    return f'openjdk version "{text}" 2025-04-15'


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def test_java_on_path_is_found(tmp_path: Path) -> None:
    script = java(tmp_path / "path", version("17.0.15"))
    assert require_java() == script


@pytest.mark.parametrize("text", ["17", "17.0.15", "18-ea", "21.0.2"])
def test_java_17_to_21_is_accepted(tmp_path: Path, text: str) -> None:
    java(tmp_path / "path", version(text))
    require_java()


def test_java_home_has_priority_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path / "path", version("21.0.2"))
    script = java(tmp_path / "home" / "bin", version("17.0.15"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert require_java() == script


def test_a_missing_java_is_an_error() -> None:
    with pytest.raises(JavaError, match="no Java was found") as caught:
        require_java()
    assert "install Java 17" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [("11.0.25", "Java 11 is too old"), ("1.8.0_412", "Java 8 is too old"), ("25.0.1", "Java 25 is too new")],
)
def test_an_unsupported_version_is_refused(tmp_path: Path, text: str, message: str) -> None:
    script = java(tmp_path / "path", version(text))
    with pytest.raises(JavaError, match=message) as caught:
        require_java()
    assert caught.value.where == f"{script} (from PATH)"


def test_the_error_quotes_an_output_without_a_version(tmp_path: Path) -> None:
    java(tmp_path / "path", "Unable to locate a Java Runtime.", status=1)
    with pytest.raises(JavaError, match="Unable to locate a Java Runtime"):
        require_java()


def test_a_java_home_without_java_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(JavaError, match="No such file") as caught:
        require_java()
    assert "from JAVA_HOME" in str(caught.value.where)


def test_if_only_java_home_is_wrong_the_hint_names_the_java_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = java(tmp_path / "path", version("17.0.15"))
    java(tmp_path / "home" / "bin", version("25"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(JavaError, match="Java 25 is too new") as caught:
        require_java()
    assert caught.value.hint == f"unset JAVA_HOME: {good} from PATH is Java 17"
