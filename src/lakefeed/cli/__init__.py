"""The command line: one file a noun, thin; every command prints through ``lakefeed.cli.output``."""

from __future__ import annotations

from lakefeed.cli.main import main

__all__ = ["main"]
