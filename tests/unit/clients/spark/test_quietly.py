"""An error that is reported in a sentence is not logged as well; the blocks of other threads change nothing."""

import logging
import threading

from pyspark.logger import PySparkLogger

from lakefeed.clients.spark.errors import quietly


class Seen(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_a_thread_is_quiet_as_long_as_its_own_block_lasts() -> None:
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    handler = Seen()
    log.addHandler(handler)
    inside, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with quietly():
            inside.set()
            may_end.wait(5)
            log.error("of the other thread")

    thread = threading.Thread(target=other)
    try:
        thread.start()
        assert inside.wait(5)
        log.error("heard")
        with quietly():
            with quietly():
                log.error("nested")
            log.error("quiet")
        log.error("heard again")
        may_end.set()
        thread.join(5)
    finally:
        log.removeHandler(handler)
    assert handler.messages == ["heard", "heard again"]
