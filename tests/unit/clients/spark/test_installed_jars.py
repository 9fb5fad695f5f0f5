"""The jars of installed packages are on the class path of every session; the error for a missing jar names the jar."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from lakefeed.clients.spark import jvm
from lakefeed.errors import LakefeedError
from lakefeed.plugins import FOLLOWERS_GROUP


def test_a_missing_jar_is_an_error_only_for_the_package_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, jar in {"broken": "lakefeed/nowhere.jar", "whole": "lakefeed/py.typed"}.items():
        package = ModuleType(name)
        package.__dict__["JARS"] = (jar,)
        monkeypatch.setitem(sys.modules, name, package)
    entries = [EntryPoint(name, f"{name}.follower:follow", FOLLOWERS_GROUP) for name in ("broken", "missing", "whole")]
    monkeypatch.setattr(jvm, "installed", lambda group: entries if group == FOLLOWERS_GROUP else [])
    assert [path.name for path in jvm.installed_jars()] == ["py.typed"]
    with pytest.raises(LakefeedError, match=r"(?s)a jar of the package is missing.*nowhere\.jar"):
        jvm.jars_of("broken.settings")
