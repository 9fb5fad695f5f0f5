"""Handle the signals that ask this process to end: SIGTERM from a service manager, SIGHUP from a terminal, Ctrl-C."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any

# Py4J logs the first message when Ctrl-C interrupts a call, and the second if this Ctrl-C has ended the JVM, too.
_INTERRUPTED = ("KeyboardInterrupt while sending command.", "Exception occurred while shutting down connection")
_ASKED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_TERMINALS = [number for number in (0, 1, 2) if os.isatty(number)]
_received: list[signal.Signals] = []
_work_has_begun = threading.Event()


def end_on_signals() -> None:
    """Make SIGTERM, SIGHUP and Ctrl-C raise KeyboardInterrupt, so that the command stops all that it has started."""
    _received.clear()
    _work_has_begun.clear()
    for number in _handled():
        signal.signal(number, _interrupt)


def exit_status() -> int:
    """Return the exit status after the first signal: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def signal_received() -> bool:
    return bool(_received)


def begin_work() -> None:
    """Record that the work begins, which is completed despite a signal; before, a signal ends the command at once."""
    _work_has_begun.set()


def is_starting() -> bool:
    """Return whether the command has not called ``begin_work`` yet."""
    return not _work_has_begun.is_set()


@contextmanager
def stop_on_signals(say: Callable[[str], None] = lambda text: None) -> Iterator[threading.Event]:
    """Yield an event that SIGTERM, SIGHUP and the first Ctrl-C set; a second Ctrl-C raises KeyboardInterrupt.

    Pass the event as ``stop`` to ``Pipeline.run``: the run then ends after the current batch. Under spark-submit the
    JVM, this process's parent, forwards its signals to this process.

    Use this in the main thread, after the session has started.

    Args:
        say: called with a message for the user at the first signal.

    Example:
        >>> with lf.stop_on_signals() as stop:
        ...     pipeline.run(spark=spark, stop=stop)
    """
    stop = threading.Event()
    speaking: list[threading.Thread] = []

    def request(number: int, frame: FrameType | None) -> None:
        _note(number)
        # Do not ask ``stop.is_set()``: a request may have set it, but the first Ctrl-C must still print the message.
        if speaking:
            return
        stop.set()
        signal.signal(signal.SIGINT, _interrupt)
        # Print in a thread, because the signal may have interrupted a write to the same stream.
        text = "stopping after the current batch; Ctrl-C again stops at once"
        speaking.append(threading.Thread(target=say, args=(text,), daemon=True))
        speaking[-1].start()

    before = {number: signal.signal(number, request) for number in _handled()}
    begin_work()
    try:
        with _forwarded_by_the_parent():
            yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for thread in speaking:
            thread.join(1)


@contextmanager
def python_keeps_its_handler() -> Iterator[None]:
    """Let a SparkContext that starts in the ``with`` block not replace this process's handler of SIGINT.

    PySpark's handler would ask the JVM to cancel all jobs, on the connection on which the interrupted call still waits.
    So Ctrl-C would end that call with an error of Py4J.
    """
    before = signal.getsignal(signal.SIGINT)
    own = before not in (signal.default_int_handler, signal.SIG_DFL, None)
    if not own or threading.current_thread() is not threading.main_thread():
        yield
        return
    context: Any = importlib.import_module("pyspark.core.context")
    context.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    try:
        yield
    finally:
        context.signal = signal


def _handled() -> list[signal.Signals]:
    """Return the signals that this process handles; SIGHUP is not among them if ``nohup`` has disabled it."""
    return [number for number in _ASKED if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


def _interrupt(number: int, frame: FrameType | None) -> None:
    repeated = bool(_received)
    _note(number)
    # The program 'timeout' sends SIGTERM twice; the second signal must not interrupt the command while it cleans up.
    if number == signal.SIGINT or not repeated:
        if (logging := sys.modules.get("logging")) is not None:
            for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
                logger.addFilter(_is_no_interrupted_call)
        raise KeyboardInterrupt


def _is_no_interrupted_call(record: Any) -> bool:
    """Return False for Py4J's log records about an interrupted call, because the command itself reports its end."""
    return record.msg not in _INTERRUPTED


def _note(number: int) -> None:
    _received.append(signal.Signals(number))
    if number == signal.SIGHUP:  # The terminal is gone, and writing to it would fail, so write to /dev/null.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in _TERMINALS:
            os.dup2(nowhere, stream)
        os.close(nowhere)


@contextmanager
def _forwarded_by_the_parent() -> Iterator[None]:
    """Let the JVM of spark-submit, which is this process's parent, forward signals and not end because of them."""
    pyspark: Any = sys.modules.get("pyspark")
    context = pyspark and pyspark.SparkContext._active_spark_context
    if context is None or "PYSPARK_GATEWAY_PORT" not in os.environ:
        yield
        return
    parent = context._jvm.io.lakefeed.query.ParentSignals
    parent.passOnTo(os.getpid())
    try:
        yield
    finally:
        parent.passOnTo(0)
