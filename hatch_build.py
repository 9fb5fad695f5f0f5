"""Puts the jars of core and plug-ins, the dashboard's chart library and the references into wheels and source archives.

So an installed lakefeed needs neither a JDK nor npm's registry. Plug-ins with Java name this file as their hook.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # type: ignore[import-not-found]


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the generated files that are out of date, and add them to the wheel or archive; an editable install
        finds the files in the tree (``make setup``).
        """
        if version == "editable":
            return
        sys.path.insert(0, str(Path(__file__).parent))
        try:
            from tools import build_jvm, build_page, references
            from tools.npm_packages import NotFetched
        finally:
            sys.path.pop(0)
        root = Path(self.root)
        if root == build_page.PACKAGE:
            self._add_page(build_data, build_page.build, NotFetched)
            return
        # A build's own environment has no PySpark.
        self._run_in_checkout("tools.build_jvm")
        try:
            jar = build_jvm.build(say=self.app.display_info)
        except build_jvm.BuildFailed as failed:
            raise SystemExit(
                f"The JVM module is not up to date and cannot be built here: {failed}\nFirst: make jvm"
            ) from None
        if root != Path(__file__).parent:
            [jar] = [plugin.jar for plugin in build_jvm.PLUGINS if plugin.jar.is_relative_to(root)]
        else:
            self._add_references(build_data, references.NAMES)
            if self.target_name == "sdist":  # The plug-ins' wheels are built from this archive, too.
                self._add(build_data, [plugin.jar for plugin in build_jvm.PLUGINS])
                self._add_page(build_data, build_page.build, NotFetched)
        self._add(build_data, [jar])

    def _run_in_checkout(self, tool: str) -> None:
        """Run a tool in the environment of ``make setup``; a source archive has no such environment, but already has
        the tool's files.
        """
        root = Path(__file__).parent
        python = root / ".venv" / "bin" / "python"
        if python.exists():
            subprocess.run([python, "-m", tool], cwd=root, check=True, stdout=subprocess.DEVNULL)

    def _add_page(self, build_data: dict[str, Any], build: Callable[..., Path], failure: type[Exception]) -> None:
        try:
            vendor = build(say=self.app.display_info)
        except failure as failed:
            raise SystemExit(f"The dashboard's chart library cannot be fetched: {failed}") from None
        self._add(build_data, sorted(vendor.iterdir()))

    def _add_references(self, build_data: dict[str, Any], names: tuple[str, ...]) -> None:
        """Build the references with the checkout's environment, because a build's own environment lacks lakefeed's
        packages; a source archive has the references already.
        """
        root = Path(self.root)
        self._run_in_checkout("tools.references")
        if not all((root / "docs" / name).exists() for name in names):
            raise SystemExit(
                f"The references are not built, and cannot be built here: {', '.join(names)}\nFirst: make setup"
            )
        if self.target_name == "sdist":  # A wheel already has the whole folder docs/.
            build_data["force_include"] |= {str(root / "docs" / name): f"docs/{name}" for name in names}

    def _add(self, build_data: dict[str, Any], files: list[Path]) -> None:
        for file in files:
            target = file.relative_to(Path(self.root, "src") if self.target_name == "wheel" else self.root)
            build_data["force_include"][str(file)] = target.as_posix()
