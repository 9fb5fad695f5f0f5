"""Puts the JVM module and the dashboard's chart library into wheels and source archives.

So an installed lakefeed needs neither a JDK nor npm's registry.
"""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # type: ignore[import-not-found]


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Brings both up to date and adds them; an editable install finds them in the tree (``make setup``)."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from tools import build_jvm, build_page
            from tools.npm_packages import NotFetched
        finally:
            sys.path.pop(0)
        try:
            jar = build_jvm.build(say=self.app.display_info)
        except build_jvm.BuildFailed as failed:
            raise SystemExit(
                f"The JVM module is not up to date and cannot be built here: {failed}\nFirst: make jvm"
            ) from None
        try:
            vendor = build_page.build(say=self.app.display_info)
        except NotFetched as failed:
            raise SystemExit(f"The dashboard's chart library cannot be had: {failed}") from None
        package = "lakefeed" if self.target_name == "wheel" else "src/lakefeed"
        build_data["force_include"][str(jar)] = f"{package}/lakefeed-jvm.jar"
        for file in sorted(vendor.iterdir()):
            build_data["force_include"][str(file)] = f"{package}/dashboard/static/vendor/{file.name}"
