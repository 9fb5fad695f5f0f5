"""The command line: a thin file for each noun; all commands print through ``lakefeed.cli.output``."""

from __future__ import annotations

from lakefeed.clients.spark.signals import end_on_signals

__all__ = ["main"]


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit. Signals are handled from the start, already during the slow imports."""
    end_on_signals()
    from lakefeed.cli.main import main as run

    run(argv)
