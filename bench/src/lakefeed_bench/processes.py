"""Measure CPU time and memory of the driver's JVM, of Python, of servers and of whole commands."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakefeed.errors import JobFailed

_THREADS = {"Executor task l": "tasks", "C1 CompilerThre": "compilers", "C2 CompilerThre": "compilers"}
"""The type of a JVM thread by the first 15 characters of its name; Linux stores no more. The names of the
garbage collector's threads begin with G1 or GC."""
KEEP_COMPILERS = {"JAVA_TOOL_OPTIONS": "-XX:-UseDynamicNumberOfCompilerThreads"}
"""The JVM option that keeps compiler threads alive, because the CPU time of an ended thread cannot be read."""
_PR_SET_CHILD_SUBREAPER = 36


def jvm_pid() -> int:
    """Return the process id of the driver's JVM: that of spark-submit's shell, which the JVM has replaced."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    return int(gateway.proc.pid)


def cpu_seconds() -> float:
    """Return the CPU time that the driver's JVM and this process have used so far."""
    return cpu_seconds_of(jvm_pid()) + time.process_time()


@dataclass(frozen=True, kw_only=True)
class Took:
    """One run: its duration, the CPU time of JVM and Python, and whether the table has the same rows as the topic."""

    seconds: float
    cpu_seconds: float
    rows_equal: bool = True

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu_seconds:.1f} CPU s{'' if self.rows_equal else '; ROWS DIFFER'}"


def timed(work: Callable[[], object]) -> Took:
    began, cpu = time.monotonic(), cpu_seconds()
    work()
    return Took(seconds=time.monotonic() - began, cpu_seconds=cpu_seconds() - cpu)


def cpu_seconds_of(pid: int) -> float:
    return cpu_time(Path(f"/proc/{pid}/stat"))[1]


def cpu_time(stat: Path) -> tuple[str, float]:
    """Return the name and the user plus system time of a process or thread, from its ``stat`` file (proc(5))."""
    try:
        text = stat.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0.0  # The thread or process has ended since it was listed.
    # Field 2, in parentheses, is the name and may contain any character. Fields 14 and 15 are the times, in ticks.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CpuTimes:
    """The CPU time so far: of the driver's JVM, of this process, and of each JVM thread (id → name, seconds)."""

    jvm: float
    python: float
    threads: dict[str, tuple[str, float]]

    @classmethod
    def now(cls) -> CpuTimes:
        process = Path(f"/proc/{jvm_pid()}")
        threads = {thread.name: cpu_time(thread / "stat") for thread in (process / "task").iterdir()}
        return cls(jvm=cpu_time(process / "stat")[1], python=time.process_time(), threads=threads)

    def since(self, before: CpuTimes) -> dict[str, float]:
        """Return the CPU time since ``before`` by type of thread; ``other`` includes threads that have ended."""
        spent = dict.fromkeys(("tasks", "compilers", "collector"), 0.0)
        for thread, (name, seconds) in self.threads.items():
            kind = _THREADS.get(name, "collector" if name.startswith(("G1", "GC")) else "")
            if kind:
                spent[kind] += seconds - before.threads.get(thread, ("", 0.0))[1]
        other = self.jvm - before.jvm - sum(spent.values())
        return {**spent, "python": self.python - before.python, "other": other}


def without_compilers(cpu: Mapping[str, float]) -> float:
    """Sum the CPU times without the JVM's compilers, which work more in the first runs of a process."""
    return sum(seconds for kind, seconds in cpu.items() if kind != "compilers")


def forget_peaks() -> None:
    """Reset the peaks of the resident memory of the JVM and of this process, if the system supports that."""
    for pid in (jvm_pid(), os.getpid()):
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_megabytes() -> int:
    """Return the JVM's plus this process's peak resident memory since ``forget_peaks``."""

    def kilobytes(pid: int) -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    return sum(map(kilobytes, (jvm_pid(), os.getpid()))) // 1024


@dataclass(frozen=True, kw_only=True)
class FinishedCommand:
    """An ended command: the seconds of its own process, the CPU seconds of all its processes, and its stdout."""

    seconds: float
    cpu_seconds: float
    output: str


def run_command(command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> FinishedCommand:
    """Run a command, wait for all of its processes, and append its stderr to the log.

    A driver's JVM ends after its command, and its CPU seconds count until then. So this process adopts the command's
    orphaned processes, which is possible only on Linux. Raises JobFailed if the status is not 0.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # With an empty PYTHONDONTWRITEBYTECODE, the warm-up round writes compiled modules, as a usual installation does.
    variables = {**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": ""}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        ) as process,
    ):
        try:
            output, _ = process.communicate()
            seconds = time.monotonic() - began
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-process.pid, 0)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        what = f"{' '.join(command)} ended with status {process.returncode}"
        raise JobFailed(what, where=str(log), hint="read the log")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return FinishedCommand(seconds=seconds, cpu_seconds=cpu, output=output.decode())
