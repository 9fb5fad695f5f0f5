"""Tests of the tools that build the JVM module and run its unit tests."""

from pathlib import Path

import pytest

from tools import build_jvm, test_jvm


@pytest.fixture
def jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "lakefeed-jvm.jar"
    monkeypatch.setattr(build_jvm, "JAR", path)
    monkeypatch.setattr(build_jvm, "PLUGINS", ())
    return path


@pytest.mark.slow
def test_two_builds_of_the_same_sources_give_the_same_bytes(jar: Path) -> None:
    said: list[str] = []
    first = build_jvm.build(say=said.append).read_bytes()
    build_jvm.build(say=said.append)
    assert said[-1] == "lakefeed-jvm.jar is up to date"
    assert build_jvm.build(force=True, say=said.append).read_bytes() == first
    jar.write_bytes(first[:1000])
    assert build_jvm.build(say=said.append).read_bytes() == first
    assert sorted(path.name for path in jar.parent.iterdir()) == [jar.name]


def test_a_build_without_a_jdk_is_an_error_and_leaves_no_file(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(build_jvm.BuildFailed, match="install a JDK of version 17"):
        build_jvm.build()
    assert not list(jar.parent.iterdir())


def test_broken_sources_fail_the_build(jar: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    (sources / "java").mkdir(parents=True)
    (sources / "java" / "Broken.java").write_text("class Broken {", "utf-8")
    monkeypatch.setattr(build_jvm, "SOURCES", sources)
    with pytest.raises(build_jvm.BuildFailed, match="reached end of file"):
        build_jvm.build()
    assert not jar.exists()


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("public class Broken { private Broken() {} }", "no comment"),
        ("/** A {@link Missing}. */\npublic class Broken { private Broken() {} }", "reference not found"),
        ("class Broken { java.util.List list; }", "rawtypes"),
    ],
)
def test_a_warning_fails_the_build(
    jar: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, finding: str
) -> None:
    sources = tmp_path / "sources"
    (sources / "java").mkdir(parents=True)
    (sources / "java" / "Broken.java").write_text(source, "utf-8")
    monkeypatch.setattr(build_jvm, "SOURCES", sources)
    with pytest.raises(build_jvm.BuildFailed, match=finding):
        build_jvm.build()
    assert not jar.exists()


@pytest.mark.parametrize(("expected", "status"), [(2, 0), (3, 1)])
def test_a_failed_unit_test_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expected: int, status: int
) -> None:
    tests = tmp_path / "java"
    tests.mkdir()
    (tests / "SumTest.java").write_text(
        "class SumTest { @org.junit.jupiter.api.Test void adds() {"
        f" org.junit.jupiter.api.Assertions.assertEquals({expected}, 1 + 1); }} }}",
        "utf-8",
    )
    monkeypatch.setattr(test_jvm, "TESTS", tests)
    monkeypatch.setattr(test_jvm, "CLASSES", tmp_path / "classes")
    assert test_jvm.run([]) == status


def test_a_run_of_a_missing_java_test_fails() -> None:
    assert test_jvm.run(["NoSuchTest"]) != 0
