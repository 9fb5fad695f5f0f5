"""CachedRead caches a document for seconds, never runs two reads at once, and limits the time to wait for a read."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakefeed.errors import Unreachable
from lakefeed_dashboard.workers import CachedRead
from tests.support.clock import Clock


def failed(why: str) -> dict[str, Any]:
    return {"error": why}


def test_many_viewers_share_one_read_until_the_document_expires() -> None:
    clock, reads, gate = Clock(), [], threading.Event()

    def read() -> dict[str, Any]:
        reads.append(threading.current_thread().name)
        gate.wait(5)
        return {"number": len(reads)}

    cached = CachedRead(read, failed=failed, seconds=5, limit=5, clock=clock)
    with ThreadPoolExecutor(8) as viewers:
        found = [viewers.submit(cached.get) for _ in range(8)]
        gate.set()
        assert {answer.result()["number"] for answer in found} == {1}
    clock.now += 4.9
    assert cached.get() == {"number": 1}
    clock.now += 0.2
    assert cached.get() == {"number": 2}
    assert set(reads) == {"lakefeed-details"}


def test_a_read_that_hangs_is_not_started_again_and_the_previous_document_is_shown() -> None:
    clock, gate, reads = Clock(), threading.Event(), []

    def read() -> dict[str, Any]:
        reads.append(1)
        if len(reads) > 1:
            gate.wait(10)
        return {"number": len(reads)}

    cached = CachedRead(read, failed=failed, seconds=5, limit=0.05, clock=clock)
    first = CachedRead(lambda: {"ok": gate.wait(10)}, failed=failed, seconds=5, limit=0.05, clock=clock)
    assert first.get() == {"error": "the read takes longer than 0.05 seconds; it continues"}
    cached.get()
    clock.now += 6
    assert cached.get() == {"number": 1}
    assert cached.get() == {"number": 1}
    assert len(reads) == 2
    gate.set()


def test_an_error_is_cached_as_a_sentence() -> None:
    clock, reads = Clock(), []

    def read() -> dict[str, Any]:
        reads.append(1)
        raise Unreachable("the catalog does not answer", where="http://catalog", hint="start it")

    cached = CachedRead(read, failed=failed, seconds=5, limit=5, clock=clock)
    assert cached.get() == {"error": "the catalog does not answer (http://catalog); start it"}
    assert cached.get() == cached.get()
    assert len(reads) == 1


def test_an_unexpected_error_is_shown_only_by_its_class() -> None:
    def read() -> dict[str, Any]:
        raise ValueError("the value of a record: 4711")

    cached = CachedRead(read, failed=failed, seconds=5, limit=5)
    assert cached.get() == {"error": "the read failed: ValueError"}
