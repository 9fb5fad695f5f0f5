"""The command ``lakefeed-bench``."""

from __future__ import annotations

from lakefeed.clients.spark.signals import end_on_signals


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    end_on_signals()  # A signal must also end the command during its imports, which take seconds.
    import click

    from lakefeed.cli.main import main as run
    from lakefeed_bench.decode import decode
    from lakefeed_bench.first_seconds import first_seconds
    from lakefeed_bench.latency import latency
    from lakefeed_bench.monitor import monitor
    from lakefeed_bench.s3_requests import s3_requests
    from lakefeed_bench.scale import scale
    from lakefeed_bench.throughput import throughput
    from lakefeed_bench.upserts import upserts

    commands = [s3_requests, throughput, latency, scale, upserts, decode, monitor, first_seconds]
    about = "Measure lakefeed against real servers on this machine, and repeat published measurements."
    run(command=click.Group(commands=commands, help=about))


if __name__ == "__main__":
    main()
