"""The feed of this process, for the server in its driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lakefeed.dashboard.feeds import Actor, Detail, Document, FeedView, Refused, row_of
from lakefeed.errors import LakefeedError, UserError
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.exposition import MetricsText, metrics_text
from lakefeed.monitor.metrics.reading import FeedReading, MetricSettings

SETTINGS = ("reason", "trigger", "max_records_per_batch")


class Details(Protocol):
    """``FeedDetails``: a method for each detail."""

    def graph(self) -> Document: ...
    def table(self) -> Document: ...
    def schemas(self) -> Document: ...
    def dead_letters(self) -> Document: ...
    def costs(self) -> Document: ...
    def panels(self) -> Document: ...


class OwnFeed:
    """The feed that this process runs: one view, and the list of it alone.

    Args:
        details: what there is beyond the progress; None without a pipeline file.
        settings: of metrics and health.
    """

    def __init__(
        self, monitor: FeedMonitor, *, details: Details | None = None, settings: MetricSettings | None = None
    ) -> None:
        self.details = details
        self._monitor = monitor
        self._settings = settings or MetricSettings()

    @property
    def name(self) -> str:
        return self._monitor.feed

    def rows(self) -> Sequence[Document]:
        return [self.row()]

    def find(self, name: str) -> FeedView | None:
        return self if name == self.name else None

    def row(self) -> Document:
        return row_of(self._monitor)

    def progress(self) -> Document:
        return self._monitor.snapshot().as_dict()

    def history(self, *, since: float, most: int) -> Document:
        return self._monitor.history_since(since, most=most).as_dict()

    def events(self, *, after: int) -> Document:
        return {"events": [event.as_dict() for event in self._monitor.events.after(after)]}

    def detail(self, what: Detail) -> Document:
        if self.details is None:
            raise Refused(501, f"this feed shows no {what}")
        try:
            document: Document = getattr(self.details, what.replace("-", "_"))()
        except LakefeedError as error:
            raise Refused(503, error.what, error.hint) from None
        return document

    def act(self, request: Mapping[str, Any], *, actor: Actor) -> Document:
        given = {name: request[name] for name in SETTINGS if request.get(name) is not None}
        by = f"{actor.user} from {actor.address}" if actor.address else actor.user
        try:
            return self._monitor.control.request(request["action"], by=by, **given).as_dict()
        except UserError as error:
            raise Refused(409, error.what, error.hint) from None

    def metrics(self, *, accept: str) -> MetricsText:
        return metrics_text([FeedReading.of(self._monitor, self._settings)], accept=accept)

    def health(self) -> tuple[bool, Document]:
        found = FeedReading.of(self._monitor, self._settings).health
        return found.is_well, found.as_dict()

    def note(self, message: str, **details: Any) -> None:
        self._monitor.events.add("action", message, **details)
