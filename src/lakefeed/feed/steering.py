"""Makes a run's driver wait between two queries, while an operator has paused the feed or a server does not answer.

A request never interrupts a batch: ``watch`` ends the query after the batch, as for a stop. The driver waits in this
module while the feed is paused, and then starts a new query. Meanwhile the driver keeps the fence.
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
    "a feed in real time has no batches, and Spark sends records again after an interruption of the query: stop the "
    "feed, and start it again"
)
REAL_TIME_REFUSALS: dict[Action, str] = dict.fromkeys(("pause", "change"), REAL_TIME)


class Steering:
    """Carries out the requests to one run of a feed. Use it as a context manager around the batches."""

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
        """Return whether the query has to end, so that a pending request can be carried out before the next query."""
        return self._control.is_pending

    def __enter__(self) -> Steering:
        return self

    def __exit__(self, *error: object) -> None:
        """Store a pause that was requested during the run's last batch, even after an error; refuse later requests."""
        # Refuse new requests first: a request that came after the loop below would be lost.
        self._control.close()
        while (request := self._control.take()) is not None:
            if request.action in ("pause", "resume"):
                self._carry_out(request)
        while self._control.is_at_work("replay"):
            # Wait for a running replay: the run's end would close its session, and the next replay would have to finish
            # it.
            time.sleep(POLL_SECONDS)
            self._options.monitor.tick(stops=True)

    def wait_for_start(self, *, sink: str) -> bool:
        """Wait while a pause from an earlier run lasts; return whether there was such a pause.

        Raises:
            FeedPaused: the feed is paused, and a run that ends by itself must not wait.
            StopRequested: the run was stopped while it waited.
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
                hint="run lakefeed feed resume pipeline.yaml; or start this run with --resume",
            )
        self._options.monitor.opens(sink=sink)
        self._hold(pause)
        if self.settle() == "stop":
            raise StopRequested
        return True

    def keep(self) -> None:
        """Store a request to pause or resume before it is carried out, because the driver may be killed until then."""
        if (request := self._control.next_pause) is not None:
            self._store_request(request)

    def settle(self) -> Literal["stop", "resumed", "go"]:
        """Carry out all requests, and wait while the feed is paused.

        Returns ``stop`` if the run has to end, ``resumed`` after a pause, and ``go`` without a pause.
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
        self._options.say(self._control.paused(pause, note=note))

    def _resume(self, request: ActionRequest) -> None:
        note = self._store_request(request)
        self._options.say(self._control.resumed(request.by, reason=request.reason, note=note))

    def _store_request(self, request: ActionRequest) -> str:
        """Store or delete the pause that the next start reads, once per request; return a message if this fails."""
        if self._stored is None or self._stored[0] is not request:
            pauses, note = request.action == "pause", ""
            try:
                if pauses:
                    self._store.write(request.pause)
                else:
                    self._store.clear()
            except Exception as error:
                consequence = "will not know the pause" if pauses else "will still be paused"
                note = f"the next start {consequence}: {translate(error).what}"
            self._stored = request, note
        return self._stored[1]

    def _check(self, request: ActionRequest) -> None:
        """Raise an error for a change that does not fit this feed."""
        source, most = self._config.source, request.max_records_per_batch
        if request.trigger is not None and self._ends_by_itself:
            what = "the run ends by itself, and has no trigger that could change"
            raise ConfigError(what, where="trigger", hint="start the feed without --once, with trigger: 10 seconds")
        if most is None:
            return
        where = "max_records_per_batch"
        if source.numbered is None:
            raise ConfigError(f"source.{source.kind} has no {where}", where=where, hint="change only the trigger")
        if source.installed is not None and most > MOST_OF_INSTALLED:
            what, limit = f"{where} is too large for source.{source.kind}", f"{MOST_OF_INSTALLED:,}"
            raise ConfigError(what, where=where, hint=f"give {limit} at most")
        least = source.kafka.min_records_per_batch if source.kafka is not None else None
        if least is not None and least > most:
            what, hint = f"{where} is less than min_records_per_batch, which is {least:,}", f"give {least:,} or more"
            raise ConfigError(what, where=where, hint=hint)


def with_batches_of(config: PipelineConfig, most: int) -> PipelineConfig:
    source, numbered = config.source, config.source.numbered
    if numbered is None:
        return config
    changed = {source.kind: numbered.model_copy(update={"max_records_per_batch": most})}
    return config.model_copy(update={"source": source.model_copy(update=changed)})


class Outage:
    """Waits for the servers of a run (brokers, registry, catalog and store), with one time limit for all.

    So a server's restart delays a batch, but does not end the feed. After the wait, Spark plans the batch again, and
    the batch writer asks the ledger whether it was committed: a batch whose commit lost only its answer is not written
    twice.

    Attributes:
        has_landed: whether a batch has landed in this run, so that all servers have answered correctly.
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
        self.since: float | None = None

    def wait(self, error: LakefeedError) -> bool:
        """Wait before the next attempt; return False without waiting if another attempt cannot succeed.

        Raises:
            LakefeedError: the same error, after the time limit.
        """
        # Before the first batch, only the brokers have answered: other servers' addresses and credentials may be wrong.
        if not error.passes or not (self.has_landed or isinstance(error, BrokerUnreachable)):
            return False
        now = time.monotonic()
        if self.since is None:
            self.since, self._pause = now, FIRST_PAUSE_SECONDS
            where = f" ({error.where})" if error.where else ""
            self._say(f"waiting for a server: {error.what}{where}; for at most {self._seconds:g} s")
        elif now - self.since > self._seconds:
            raise type(error)(
                f"{error.what}, for {now - self.since:.0f} s now",
                where=error.where,
                hint=f"{error.hint}; then start the feed again: it resumes where it stopped",
            ) from error
        self._monitor.waits_for(error)
        self._stop.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True

    def is_over(self) -> None:
        """Record that all servers answer again."""
        if self.since is not None:
            self._say(f"all servers answer again, after {time.monotonic() - self.since:.0f} s")
            self._monitor.waits_for(None)
        self.since = None
