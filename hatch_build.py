"""Puts the JVM module into wheels and source archives, so that an installed lakefeed needs no JDK."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # type: ignore[import-not-found]


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Brings the jar up to date and adds it; an editable install finds it in the tree (``make jvm``)."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "tools"))
        try:
            from build_jvm import BuildFailed, build  # type: ignore[import-not-found]
        finally:
            sys.path.pop(0)
        try:
            jar = build(say=self.app.display_info)
        except BuildFailed as failed:
            raise SystemExit(
                f"The JVM module is not up to date and cannot be built here: {failed}\nFirst: make jvm"
            ) from None
        inside = "lakefeed/lakefeed-jvm.jar" if self.target_name == "wheel" else "src/lakefeed/lakefeed-jvm.jar"
        build_data["force_include"][str(jar)] = inside
