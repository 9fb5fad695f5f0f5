"""A session combines the settings of lakefeed and the user, and has only one garbage collector."""

import pytest

from lakefeed.clients.spark.session import COLLECTOR, settings, with_own

OPTIONS, DEFAULTS = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"


@pytest.fixture(autouse=True)
def without_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_only_a_local_master_gets_lakefeeds_garbage_collector() -> None:
    assert settings()[OPTIONS].endswith(f" {COLLECTOR}")
    assert OPTIONS not in settings(master="spark://one:7077")


@pytest.mark.parametrize("key", [OPTIONS, DEFAULTS])
@pytest.mark.parametrize("collector", ["-XX:+UseG1GC", "-XX:+UseZGC", "-XX:+UseSerialGC"])
def test_the_users_garbage_collector_replaces_lakefeeds(key: str, collector: str) -> None:
    whole = with_own(settings(), {key: f"-Dx=1 {collector}"})
    text = f"{whole[OPTIONS]} {whole.get(DEFAULTS, '')}"
    assert COLLECTOR not in text
    assert text.count("GC") == 1
    assert "-XX:Tier4" in text


def test_a_java_option_without_a_garbage_collector_keeps_lakefeeds() -> None:
    assert with_own(settings(), {OPTIONS: "-Dx=UseG1GC"})[OPTIONS].endswith(f"{COLLECTOR} -Dx=UseG1GC")
    assert with_own({"spark.a": "1"}, {OPTIONS: "-XX:+UseG1GC"}) == {"spark.a": "1", OPTIONS: "-XX:+UseG1GC"}


@pytest.mark.parametrize("name", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_a_garbage_collector_in_the_environment_replaces_lakefeeds(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-XX:+UseG1GC")
    assert COLLECTOR not in settings()[OPTIONS]


def test_the_users_plugins_come_after_lakefeeds() -> None:
    own = "io.lakefeed.JvmPlugin,io.lakefeed.metrics.FeedMetrics"
    whole = with_own(settings(), {"spark.plugins": "org.example.Mine"})
    assert whole["spark.plugins"] == f"{own},org.example.Mine"
