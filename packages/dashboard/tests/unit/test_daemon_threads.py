"""The dashboard's threads run calls in parallel up to their number, and never delay the end of the process."""

import subprocess
import sys
import threading

import pytest

from lakefeed_dashboard.workers import DaemonThreads


def test_calls_are_made_at_once_up_to_the_number_and_threads_are_used_again() -> None:
    threads = DaemonThreads(2, name="test-pool")
    together = threading.Barrier(2)
    assert sorted(call.result(10) for call in [threads.submit(together.wait, 10) for _ in range(2)]) == [0, 1]
    names = {threads.submit(lambda: threading.current_thread().name).result(10) for _ in range(20)}
    assert names <= {"test-pool_1", "test-pool_2"}
    assert isinstance(threads.submit(int, "x").exception(10), ValueError)
    assert threads.submit(int, "7").result(10) == 7
    threads.shutdown()


def test_after_the_shutdown_nothing_more_is_called() -> None:
    threads, go = DaemonThreads(1, name="test-pool"), threading.Event()
    began = threading.Event()

    def run() -> bool:
        began.set()
        return go.wait(10)

    running = threads.submit(run)
    assert began.wait(10)
    waiting = threads.submit(int)
    threads.shutdown()
    assert (waiting.cancelled(), running.done()) == (True, False)
    with pytest.raises(RuntimeError):
        threads.submit(int)
    go.set()
    assert running.result(10)


@pytest.mark.waits
def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    program = (
        "import asyncio, time\n"
        "from lakefeed_dashboard import workers\n"
        "workers.SLOW_SECONDS = 0.1\n"
        "async def ask(threads):\n"
        "    try: await threads.slow(time.sleep, 300)\n"
        "    except workers.Refused as refused: print(refused.status)\n"
        "threads = workers.Workers()\n"
        "asyncio.run(ask(threads))\n"
        "threads.close()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "503\n"), ended.stderr
