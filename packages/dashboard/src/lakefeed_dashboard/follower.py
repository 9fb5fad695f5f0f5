"""While a run lasts, serve the run's dashboard, and the run's details for ``lakefeed dashboard``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from lakefeed.monitor.metrics.table import MetricSettings
from lakefeed.operations.endpoint import OwnFeed
from lakefeed.operations.followers import FollowedRun
from lakefeed_dashboard.details.feed_details import FeedDetails
from lakefeed_dashboard.settings import Dashboard


@contextmanager
def follow(run: FollowedRun) -> Iterator[None]:
    """Serve the details at the driver's endpoint, and the dashboard if the pipeline file has one.

    Raises:
        PortTaken: another process listens on the dashboard's port.
        ConfigError: the certificate or its key cannot be read.
    """
    if run.is_failed_start:
        yield
        return
    details = FeedDetails(run.config, run.monitor, run.spark, connections=run.connections)
    run.monitor.documents.update(details.documents)
    settings = run.config.block(Dashboard)
    with ExitStack() as stack:
        stack.enter_context(closing(details))
        if settings is not None:
            # A run without a dashboard does not load the libraries of its server.
            from lakefeed_dashboard.server import serve

            feed = OwnFeed(run.monitor, settings=MetricSettings.of(run.config))
            run.say(f"the dashboard is at {stack.enter_context(serve(feed, settings))}")
        yield
