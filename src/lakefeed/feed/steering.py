"""Keeps a run's driver between two queries: while an operator has paused the feed, or a server does not answer.

A query is never cut for a request: ``watch`` ends it as for a stop, here its driver waits while the feed is paused, and
then starts the query again. The fence is held all the while, as by a feed without new records.
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
    """The requests to one run of a feed, and its pause. A context manager around the batches.

    Attributes:
        interrupts: whether a request waits for the query to end.
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
        """Keep a pause that was requested in the run's last batch, also if that has failed; then refuse others."""
        # First: a request that is accepted after the look would be lost.
        self._control.close()
        while (request := self._control.take()) is not None:
            if request.action in ("pause", "resume"):
                self._carry_out(request)
        while self._control.is_at_work("replay"):
            # The next replay would finish it; but the session ends with the run.
            time.sleep(POLL_SECONDS)
            self._options.monitor.tick(stops=True)

    def wait_for_start(self, *, sink: str) -> bool:
        """Wait while a pause holds that an earlier run has left; return whether there was any.

        Raises:
            FeedPaused: the run is one that ends by itself.
            StopRequested: the run is to end.
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
        """Store a pause or a resume that waits for the end of the batch: the driver may be killed before that."""
        if (request := self._control.next_pause) is not None:
            self._store_request(request)

    def settle(self) -> Literal["stop", "resumed", "go"]:
        """Carry out what was requested, and wait while the feed is paused.

        Returns ``stop`` if the run is to end, and ``resumed`` if it was paused.
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
        """Store what a pause or a resume means for the next start, once; returns what the user has to know."""
        if self._stored is None or self._stored[0] is not request:
            if request.action == "pause":
                note = self._keep(lambda: self._store.write(request.pause), "is not known to the next start")
            else:
                note = self._keep(self._store.clear, "is still there for the next start")
            self._stored = request, note
        return self._stored[1]

    def _keep(self, action: Callable[[], None], consequence: str) -> str:
        """Change the stored pause; returns what the user has to know if that fails, which is no reason to end a run."""
        try:
            action()
        except Exception as error:
            why = translate(error)
            return f"the pause {consequence}: {why.what if isinstance(why, LakefeedError) else type(why).__name__}"
        return ""

    def _check(self, request: ActionRequest) -> None:
        """Refuse a change that this feed does not have."""
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
    """Return the pipeline with at most so many records in a batch."""
    source, numbered = config.source, config.source.numbered
    if numbered is None:
        return config
    changed = {source.kind: numbered.model_copy(update={"max_records_per_batch": most})}
    return config.model_copy(update={"source": source.model_copy(update=changed)})


class Outage:
    """One patience for all servers of a run: brokers, registry, catalog and store.

    A restart of a server that has answered rightly before delays a batch, and ends no feed. The batch is planned again
    then, and goes through the batch writer, which asks the ledger whether it has landed. So a commit whose answer was
    lost is not written twice.

    Attributes:
        since: when the first attempt failed; None while all servers answer.
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
        """Whether a batch has landed in this run, so that each server has answered rightly."""
        self.since: float | None = None

    def wait(self, error: LakefeedError) -> bool:
        """Wait before the next attempt; return False if the error is none to wait for.

        Raises:
            LakefeedError: of the error's class, if the patience is over.
        """
        # The brokers have described the topics at the start; of credentials and other servers nothing is known then.
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
        """Note that all servers have answered."""
        if self.since is not None:
            self._say(f"all servers answer again, after {time.monotonic() - self.since:.0f} s")
            self._monitor.waits_for(None)
        self.since = None
