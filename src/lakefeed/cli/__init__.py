"""The command line: one file a noun, thin; every command prints through ``lakefeed.cli.output``."""

from __future__ import annotations

from lakefeed.clients.spark.signals import end_on_signals

__all__ = ["main"]


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit. A signal counts from the first moment on, before the slow imports."""
    end_on_signals()
    from lakefeed.cli.main import main as run

    run(argv)
