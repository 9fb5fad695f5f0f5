"""The commands: a file for each noun. All print through ``lakefeed.cli.output``."""

from __future__ import annotations

from lakefeed.clients.spark.signals import end_on_signals

__all__ = ["main"]


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit. Signals end the command cleanly even during the slow imports."""
    end_on_signals()
    from lakefeed.cli.main import main as run

    run(argv)
