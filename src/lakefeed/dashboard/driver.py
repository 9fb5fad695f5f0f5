"""Lets a driver be seen and steered: its endpoint on loopback, its file, and the dashboard if it is asked for."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace

from lakefeed.config.base import validated
from lakefeed.config.connections import Connections
from lakefeed.config.dashboard import Dashboard, is_loopback
from lakefeed.config.models import PipelineConfig
from lakefeed.dashboard.access import Access, dashboard_access, endpoint_access, probe_access
from lakefeed.dashboard.api import DashboardApp
from lakefeed.dashboard.audit import Audit
from lakefeed.dashboard.details.feed_details import FeedDetails
from lakefeed.dashboard.feeds import Feeds
from lakefeed.dashboard.own_feed import OwnFeed
from lakefeed.dashboard.server import Listener, listen, serving
from lakefeed.dashboard.stream import Hub
from lakefeed.dashboard.workers import Workers
from lakefeed.errors import ConfigError
from lakefeed.lazy import SparkSession
from lakefeed.messages.redaction import remember
from lakefeed.monitor import drivers
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.reading import MetricSettings
from lakefeed.operations.live_status import identity_of

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Served:
    """The addresses of a running server; the token is no part of its text.

    Attributes:
        url: of the driver's endpoint, which ``token`` opens; None without one.
        dashboard_url: for browsers; None without a dashboard.
        probe_port: the port for probes; None without one.
        notes: what the user should know of it.
        use_session: takes the feed's session once it has begun: its query panels need it.
    """

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    dashboard_url: str | None = None
    probe_port: int | None = None
    notes: Sequence[str] = ()
    use_session: Callable[[SparkSession], None] = lambda spark: None


@contextmanager
def reachable(
    config: PipelineConfig,
    monitor: FeedMonitor,
    *,
    port: int | None = 0,
    dashboard: Dashboard | None = None,
    probe_port: int | None = None,
    connections: Connections | None = None,
) -> Iterator[Served]:
    """Let ``lakefeed status`` and browsers find this process within this block, as the driver of a feed.

    Args:
        port: of its endpoint on this machine, 0 for a free one; None for no endpoint.
        dashboard: where browsers find it; None for no dashboard.
        probe_port: where it answers probes and scrapes of all callers; None for nowhere.
        connections: store and catalogs of the feed.
    """
    progress = monitor.snapshot()
    with ExitStack() as stack:
        served = Served()
        if port is not None or dashboard is not None or probe_port is not None:
            feed = OwnFeed(monitor, settings=MetricSettings.of(config))

            def show_details(spark: SparkSession | None = None) -> None:
                details = FeedDetails(config, monitor, spark, connections=connections)
                feed.details = stack.enter_context(closing(details))

            show_details()

            served = stack.enter_context(serve(feed, port=port, dashboard=dashboard, probe_port=probe_port))
            served = replace(served, use_session=show_details)
        notes: list[str] = []
        note_fence = stack.enter_context(
            drivers.announced(
                progress.driver,
                feed=config.name,
                identity=identity_of(config),
                since=progress.started_at,
                url=served.url,
                token=served.token,
                say=notes.append,
            )
        )
        monitor.note_fence_by(note_fence)
        yield replace(served, notes=notes)


@contextmanager
def serve(
    feeds: Feeds, *, port: int | None = None, dashboard: Dashboard | None = None, probe_port: int | None = None
) -> Iterator[Served]:
    """Serve feeds within this block: at an endpoint for programs, a dashboard for browsers, a port for probes.

    Raises:
        PortTaken: another process listens there.
        ConfigError: the certificate or its key cannot be read.
    """
    workers = Workers()
    audit = Audit(feeds.note)
    ends: list[Access] = []
    hubs: list[Hub] = []
    with ExitStack() as stack:
        stack.callback(workers.close)
        tls = tls_context(dashboard) if dashboard is not None else None
        endpoint = None if port is None else stack.enter_context(listen(LOOPBACK, port))
        page = None if dashboard is None else stack.enter_context(listen(dashboard.host, dashboard.port))
        probes = None if probe_port is None else stack.enter_context(listen(_all_addresses(), probe_port))
        token = None
        if endpoint is not None:
            token = secrets.token_urlsafe(32)
            remember([token])
            ends.append(endpoint_access(token))
        if dashboard is not None and page is not None:
            ends.append(dashboard_access(dashboard, port=page.getsockname()[1]))
        if probes is not None:
            ends.append(probe_access())
        for access in ends:
            stack.callback(access.close)

        def open_listeners() -> list[Listener]:
            hub = Hub(feeds, workers)
            hubs.append(hub)
            apps = [DashboardApp(feeds, access=access, hub=hub, workers=workers, audit=audit).app() for access in ends]
            found = [Listener(endpoint, apps[0])] if endpoint is not None else []
            if probes is not None:
                found.append(Listener(probes, apps.pop()))
            if dashboard is not None and page is not None:
                shares = is_loopback(dashboard.host) or dashboard.behind_proxy
                found.append(Listener(page, apps[-1], tls=tls, shares_addresses=shares))
            return found

        def end_streams() -> None:
            for hub in hubs:
                hub.close()

        stack.enter_context(serving(open_listeners, at_end=end_streams))
        yield Served(
            url=f"http://{LOOPBACK}:{endpoint.getsockname()[1]}" if endpoint is not None else None,
            token=token,
            dashboard_url=_url(dashboard, page.getsockname()[1])
            if dashboard is not None and page is not None
            else None,
            probe_port=probes.getsockname()[1] if probes is not None else None,
        )


def _all_addresses() -> str:
    """Return the address that stands for all of this machine, of both families where it has both."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104


def tls_context(dashboard: Dashboard) -> ssl.SSLContext | None:
    """Load the certificate; None without TLS."""
    if dashboard.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = f"dashboard.tls: {dashboard.tls.certificate}, {dashboard.tls.key}"
    try:
        # Without the password, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(dashboard.tls.certificate, dashboard.tls.key, password=lambda: "")
    except ssl.SSLError as error:
        what = f"the certificate and its key cannot be used: {error.reason or 'not PEM'}"
        raise ConfigError(what, where=where, hint="both in PEM, and of each other; no passphrase") from None
    except OSError as error:
        raise ConfigError(f"the certificate or its key cannot be read: {error.strerror}", where=where) from None
    return context


def dashboard_of(config: PipelineConfig, asked: str | None) -> Dashboard | None:
    """Return the dashboard's settings: of the file, and as asked for on the command line.

    Args:
        asked: HOST:PORT, PORT or HOST, which replace the file's; empty for the file's or the defaults; None for a
            dashboard only if the file has one.
    """
    declared = config.dashboard
    if asked is None:
        return declared
    settings = {} if declared is None else {name: getattr(declared, name) for name in declared.model_fields_set}
    return validated(Dashboard, "--dashboard", **{**settings, **address_of(asked)})


def address_of(text: str) -> dict[str, str | int]:
    """Read HOST:PORT, PORT or HOST."""
    if not text:
        return {}
    if text.isdecimal():
        return {"port": int(text)}
    if text.lower().endswith((".yaml", ".yml")):
        hint = f"lakefeed run {text} --dashboard; or --dashboard=HOST:PORT"
        raise ConfigError("a file is no address of a dashboard", where=f"--dashboard={text}", hint=hint)
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        return {"host": text}
    if not port.isdecimal():
        raise ConfigError(f"'{port}' is no port", where=f"--dashboard={text}", hint="HOST:PORT")
    return {"host": host, "port": int(port)}


def _url(dashboard: Dashboard, port: int) -> str:
    if dashboard.public_url is not None:
        return dashboard.public_url
    host = dashboard.host.strip("[]")
    return f"{'https' if dashboard.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
