"""Lets a run's driver wait between two queries: while an operator has paused the feed, or a server does not answer.

A request never interrupts a batch: ``watch`` ends the query as for a stop. The driver waits here while the feed is
paused, and then starts a new query. It holds the fence all the time, like a feed without new records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal

from lakefeed.clients.environment import this_user
from lakefeed.clients.retry import PATIENCE_SECONDS
from lakefeed.clients.spark.errors import translate
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import AVAILABLE_NOW
from lakefeed.errors import BrokerUnreachable, ConfigError, FeedPaused, LakefeedError
from lakefeed.feed.control import Action, ActionRequest
from lakefeed.feed.observer import RunObserver
from lakefeed.feed.run import POLL_SECONDS, RunOptions, StopRequested
from lakefeed.ledger.pauses import Pause, PauseStore

AT_THE_START = "by the option --resume of its start"
MOST_OF_INSTALLED = 2**31 - 1
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 10.0
REAL_TIME = (
    "in real time there are no batches, and each interruption of the query sends records again: stop the feed, and "
    "start it again"
)
REAL_TIME_REFUSALS: dict[Action, str] = dict.fromkeys(("pause", "change"), REAL_TIME)


class Steering:
    """Carries out the requests to one run of a feed. Use it as a context manager around the batches.

    Attributes:
        interrupts: whether a request waits for the query's end.
    """

    def __init__(
        self,
        config: PipelineConfig,
        options: RunOptions,
        store: PauseStore,
        *,
        change: Callable[[ActionRequest], None] = lambda request: None,
        refusals: Mapping[Action, str] | None = None,
    ) -> None:
        self._config, self._options, self._store, self._change = config, options, store, change
        self._control = options.monitor.control
        self._ends_by_itself = options.once or config.trigger == AVAILABLE_NOW
        self._stored: tuple[ActionRequest, str] | None = None
        self._control.open(options.stop, refusals=refusals, check=self._check)

    @property
    def interrupts(self) -> bool:
        return self._control.is_pending

    def __enter__(self) -> Steering:
        return self

    def __exit__(self, *error: object) -> None:
        """Store a pause that was requested during the run's last batch, even after an error; refuse later requests."""
        # Close first: a request that comes after the loop below would be lost.
        self._control.close()
        while (request := self._control.take()) is not None:
            if request.action in ("pause", "resume"):
                self._carry_out(request)
        while self._control.is_at_work("replay"):
            # The session ends with the run, so wait for the replay; otherwise the next replay would have to finish it.
            time.sleep(POLL_SECONDS)
            self._options.monitor.tick(stops=True)

    def wait_for_start(self, *, sink: str) -> bool:
        """Wait while the feed has a pause from an earlier run; return whether it waited.

        Raises:
            FeedPaused: the run ends by itself, so it must not wait.
            StopRequested: the run has to stop.
        """
        pause = self._store.read()
        if pause is None:
            return False
        if self._options.resume:
            self._resume(ActionRequest(action="resume", by=this_user(), at=time.time(), reason=AT_THE_START))
            return False
        if self._ends_by_itself:
            raise FeedPaused(
                f"feed '{self._config.name}' is {pause.text}",
                hint="lakefeed feed resume pipeline.yaml; or this run with --resume",
            )
        self._options.monitor.opens(sink=sink)
        self._hold(pause)
        if self.settle() == "stop":
            raise StopRequested
        return True

    def keep(self) -> None:
        """Store a pause or a resume that still waits for the end of the batch, because the driver may be killed."""
        if (request := self._control.next_pause) is not None:
            self._store_request(request)

    def settle(self) -> Literal["stop", "resumed", "go"]:
        """Carry out all requests, and wait while the feed is paused.

        Returns ``stop`` if the run has to end, ``resumed`` after a pause, and otherwise ``go``.
        """
        was_paused = self._control.pause is not None
        while True:
            while (request := self._control.take()) is not None:
                self._carry_out(request)
                was_paused = was_paused or self._control.pause is not None
            if self._options.stop.is_set():
                return "stop"
            if self._control.pause is None:
                return "resumed" if was_paused else "go"
            self._options.monitor.tick()
            self._control.wait(POLL_SECONDS)

    def _carry_out(self, request: ActionRequest) -> None:
        if request.action == "pause":
            self._hold(request.pause, note=self._store_request(request))
        elif request.action == "resume":
            self._resume(request)
        else:
            self._change(request)
            self._control.changed(request)

    def _hold(self, pause: Pause, *, note: str = "") -> None:
        self._control.paused(pause, note=note)
        self._options.say(pause.text + (f"; {note}" if note else ""))

    def _resume(self, request: ActionRequest) -> None:
        note, by, reason = self._store_request(request), request.by, request.reason
        self._control.resumed(by, reason=reason, note=note)
        self._options.say(f"resumed by {by}" + (f": {reason}" if reason else "") + (f"; {note}" if note else ""))

    def _store_request(self, request: ActionRequest) -> str:
        """Store a pause or delete it for the next start, once per request; return a message if that fails."""
        if self._stored is None or self._stored[0] is not request:
            if request.action == "pause":
                note = self._keep(lambda: self._store.write(request.pause), "is not known to the next start")
            else:
                note = self._keep(self._store.clear, "is still there for the next start")
            self._stored = request, note
        return self._stored[1]

    def _keep(self, action: Callable[[], None], consequence: str) -> str:
        """Change the stored pause; if that fails, return a message instead of ending the run."""
        try:
            action()
        except Exception as error:
            why = translate(error)
            return f"the pause {consequence}: {why.what if isinstance(why, LakefeedError) else type(why).__name__}"
        return ""

    def _check(self, request: ActionRequest) -> None:
        """Raise an error for a change that does not fit this feed."""
        source, most = self._config.source, request.max_records_per_batch
        if request.trigger is not None and self._ends_by_itself:
            raise ConfigError("the run ends by itself, and has no trigger that could change", where="trigger")
        if most is None:
            return
        where = "max_records_per_batch"
        if source.numbered is None:
            raise ConfigError("the source has no such setting", where=where)
        if source.installed is not None and most > MOST_OF_INSTALLED:
            raise ConfigError(f"it is {MOST_OF_INSTALLED:,} at most for source.{source.kind}", where=where)
        least = source.kafka.min_records_per_batch if source.kafka is not None else None
        if least is not None and least > most:
            raise ConfigError(f"it is less than min_records_per_batch, which is {least:,}", where=where)


def with_batches_of(config: PipelineConfig, most: int) -> PipelineConfig:
    """Return the pipeline with at most ``most`` records per batch."""
    source, numbered = config.source, config.source.numbered
    if numbered is None:
        return config
    changed = {source.kind: numbered.model_copy(update={"max_records_per_batch": most})}
    return config.model_copy(update={"source": source.model_copy(update=changed)})


class Outage:
    """Waits for the servers of a run (brokers, registry, catalog and store), with one time limit for all.

    If a server that has answered correctly before restarts, this delays a batch and does not end the feed. Spark then
    plans the batch again, and the batch writer asks the ledger whether the batch has landed. So a commit whose answer
    was lost is not written twice.

    Attributes:
        since: the time of the first failed attempt; None while all servers answer.
    """

    def __init__(
        self,
        *,
        stop: threading.Event,
        monitor: RunObserver,
        say: Callable[[str], None],
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._stop, self._monitor, self._say, self._seconds = stop, monitor, say, seconds
        self._pause = FIRST_PAUSE_SECONDS
        self.has_landed = False
        """Whether a batch has landed in this run: then all servers have answered correctly."""
        self.since: float | None = None

    def wait(self, error: LakefeedError) -> bool:
        """Wait before the next attempt; return False without waiting if the error does not pass by itself.

        Raises:
            LakefeedError: the same error, after the time limit.
        """
        # Before the first batch, only the brokers have answered; credentials and other servers may be wrong.
        if not error.passes or not (self.has_landed or isinstance(error, BrokerUnreachable)):
            return False
        now = time.monotonic()
        if self.since is None:
            self.since, self._pause = now, FIRST_PAUSE_SECONDS
            where = f" ({error.where})" if error.where else ""
            self._say(f"waiting for a server: {error.what}{where}; tried again for {self._seconds:g} s")
        elif now - self.since > self._seconds:
            raise type(error)(
                f"{error.what}, for {now - self.since:.0f} s now",
                where=error.where,
                hint=f"{error.hint}; start the feed again then: it resumes where it stopped",
            ) from error
        self._monitor.waits_for(error)
        self._stop.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True

    def is_over(self) -> None:
        """Record that all servers have answered."""
        if self.since is not None:
            self._say(f"all servers answer again, after {time.monotonic() - self.since:.0f} s")
            self._monitor.waits_for(None)
        self.since = None
