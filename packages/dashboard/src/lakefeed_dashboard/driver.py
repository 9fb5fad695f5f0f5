"""Serves a dashboard to browsers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lakefeed.errors import ConfigError
from lakefeed_dashboard.access import dashboard_access
from lakefeed_dashboard.api import DashboardApp
from lakefeed_dashboard.audit import Audit
from lakefeed_dashboard.feeds import Feeds
from lakefeed_dashboard.server import Listener, listen, serving
from lakefeed_dashboard.settings import Dashboard, is_loopback
from lakefeed_dashboard.stream import Hub
from lakefeed_dashboard.workers import Workers


@contextmanager
def serve(feeds: Feeds, dashboard: Dashboard) -> Iterator[str]:
    """Serve feeds to browsers within this block, which gets the address for them.

    Raises:
        PortTaken: another process listens there.
        ConfigError: the certificate or its key cannot be read.
    """
    workers = Workers()
    hubs: list[Hub] = []
    with ExitStack() as stack:
        stack.callback(workers.close)
        tls = tls_context(dashboard)
        page = stack.enter_context(listen(dashboard.host, dashboard.port))
        port = page.getsockname()[1]
        access = dashboard_access(dashboard, port=port)
        stack.callback(access.close)

        def open_listener() -> Listener:
            hub = Hub(feeds, workers)
            hubs.append(hub)
            app = DashboardApp(feeds, access=access, hub=hub, workers=workers, audit=Audit(feeds.note)).app()
            shares = is_loopback(dashboard.host) or dashboard.behind_proxy
            return Listener(page, app, tls=tls, shares_addresses=shares)

        def end_streams() -> None:
            for hub in hubs:
                hub.close()

        stack.enter_context(serving(open_listener, at_end=end_streams))
        host = dashboard.host.strip("[]")
        own = f"{'https' if dashboard.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        yield dashboard.public_url or own


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
