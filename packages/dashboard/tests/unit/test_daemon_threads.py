"""DaemonThreads runs calls in parallel, and never delays the end of the process."""

import subprocess
import sys
import threading

import pytest

from lakefeed_dashboard.workers import DaemonThreads


def test_calls_run_in_parallel_and_reuse_the_threads() -> None:
    threads = DaemonThreads(2, name="test-pool")
    together = threading.Barrier(2)
    assert sorted(call.result(10) for call in [threads.submit(together.wait, 10) for _ in range(2)]) == [0, 1]
    names = {threads.submit(lambda: threading.current_thread().name).result(10) for _ in range(20)}
    assert names <= {"test-pool_1", "test-pool_2"}
    assert isinstance(threads.submit(int, "x").exception(10), ValueError)
    assert threads.submit(int, "7").result(10) == 7
    threads.shutdown()


def test_shutdown_cancels_waiting_calls_and_refuses_new_ones() -> None:
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
def test_a_call_that_hangs_does_not_delay_the_exit_of_the_process() -> None:
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
