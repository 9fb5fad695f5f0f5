"""The jars in sinks' packages are on the class path of every session; the error for a missing jar names the jar."""

from typing import ClassVar

import pytest

from lakefeed.clients.spark import jvm
from lakefeed.config.blocks import SinkChoice
from lakefeed.config.sinks import SinkConfig
from lakefeed.errors import LakefeedError


class Whole(SinkConfig):
    definition: ClassVar[str] = "nowhere:Definition"
    jars: ClassVar[tuple[str, ...]] = ("lakefeed/py.typed",)


class Broken(Whole):
    jars: ClassVar[tuple[str, ...]] = ("lakefeed/nowhere.jar",)


def test_a_missing_jar_is_an_error_only_for_the_sink_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"broken": Broken, "whole": Whole}
    monkeypatch.setattr(jvm, "installed_kinds", lambda group: installed if group == SinkChoice.group else {})
    monkeypatch.setattr(SinkChoice, "installed_kind", installed.get)
    assert [path.name for path in jvm.installed_jars()] == ["py.typed"]
    with pytest.raises(LakefeedError, match=r"(?s)a jar of the package is missing.*nowhere\.jar"):
        jvm.jars_of(Broken)
