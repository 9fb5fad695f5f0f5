"""The parts that all measurements share: commands with a stack, processes with a JVM, rounds, and tables of results."""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, reduce, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.exceptions import Exit

from lakefeed.cli.options import options_of, output_option, own_home_option
from lakefeed.cli.output import echo, emit
from lakefeed.clients.environment import default_home
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.errors import translate
from lakefeed.errors import JobFailed, LakefeedError
from lakefeed.messages.printable import aligned
from lakefeed_local.local_command import fresh_stack
from lakefeed_local.stack import Endpoints

Run = Callable[..., Any]
"""Runs a module-level function in a separate process, and returns the result."""
Option = Callable[[Any], Any]
Case = TypeVar("Case")
Result = TypeVar("Result")

STORES = ("minio", "s3proxy", "versitygw")
_JVM_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results for ``--output json``, the text for the terminal, and the status: 0 if ``holds``, otherwise 1."""

    results: Any
    text: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The running stack of one measurement, which no other measurement uses."""

    endpoints: Endpoints
    folder: Path

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def topics(self) -> Topics:
        return Topics(self.endpoints.bootstrap_servers)

    @contextmanager
    def processes(self, *names: str, **variables: str) -> Iterator[dict[str, Run]]:
        """Start a process per name, with the stack's environment and ``variables``; yield a function per process."""
        environment = {**self.endpoints.as_environment(), **variables}
        with ExitStack() as stack:
            processes = {name: job_process(environment, log=self.logs / f"{name}.log") for name in names}
            yield {name: stack.enter_context(process) for name, process in processes.items()}


def measurement(name: str, *options: Option, store: str = "minio") -> Callable[[Callable[..., Outcome]], click.Command]:
    """Turn a function into a command that starts a stack and calls the function with a ``Bench`` and the options."""

    def decorate(measure: Callable[..., Outcome]) -> click.Command:
        @wraps(measure)
        def command(home: Path | None, **values: Any) -> None:
            folder = home or default_home() / "bench" / name
            with fresh_stack(folder, store=values.pop("store", store)) as endpoints:
                outcome = measure(Bench(endpoints=endpoints, folder=folder), **values)
            finish(outcome)

        own_home = own_home_option("bench", folder=f"bench/{name}")
        return click.command(name)(options_of(*options, own_home, output_option)(command))

    return decorate


def finish(outcome: Outcome) -> None:
    emit(document(outcome.results), outcome.text)
    raise Exit(0 if outcome.holds else 1)


def number(name: str, default: int, about: str, *, least: int = 1) -> Option:
    return click.option(name, type=click.IntRange(least), default=default, show_default=True, help=about)


def only(name: str, values: Sequence[str], *, into: str) -> Option:
    """Return an option that restricts the measurement to the named cases."""
    return click.option(
        name, into, type=click.Choice(values), multiple=True, help="Measure only this case; repeatable."
    )


def store_option(default: str = "minio") -> Option:
    return click.option("--store", type=click.Choice(STORES), default=default, show_default=True)


def say(text: str) -> None:
    """Print a line of progress to stderr."""
    echo(f"bench: {text}", err=True)


def in_turns(
    cases: Sequence[Case], run: Callable[[Case, int], Result], *, rounds: int, warm_up: int = 1, title: str = ""
) -> dict[Case, list[Result]]:
    """Run all cases in every round, and return their results without those of the warm-up rounds.

    ``run`` gets the case and the number of the round; warm-up rounds have numbers below 1. Every second round runs the
    cases in reverse order, so that a drift of the machine's speed affects all cases.
    """
    results: dict[Case, list[Result]] = {case: [] for case in cases}
    for at in range(1 - warm_up, rounds + 1):
        for case in cases if at % 2 else reversed(cases):
            result = run(case, at)
            say(f"{title}{f'run {at} of {rounds}' if at > 0 else 'warm-up'}, {case}: {result}")
            if at > 0:
                results[case].append(result)
            elif not getattr(result, "rows_equal", True):
                what = "the rows in the table after the warm-up differ from the records in the topic"
                raise JobFailed(what, where=str(case), hint="read the log of the case's process, in the bench's folder")
    return results


def median_of(runs: Sequence[Result]) -> Result:
    """Return a result with the median of each numeric field, and the first run's values in other fields."""
    figures: dict[str, Any] = {}
    for name, value in vars(runs[0]).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            figures[name] = statistics.median(getattr(run, name) for run in runs)
    return replace(runs[0], **figures)  # type: ignore[type-var]


def median_ratio(ours: Iterable[Result], others: Iterable[Result], figure: Callable[[Result], float]) -> float:
    """Return the median over all rounds of ``ours`` divided by ``others``, for this figure."""
    return statistics.median(figure(our) / figure(other) for our, other in zip(ours, others, strict=True))


def table(results: Iterable[object], columns: str) -> str:
    """Format results as a table; ``columns`` has attribute paths, such as ``seconds kept.files``."""
    names = columns.split()
    rows = [[_cell(reduce(_part, name.split("."), result)) for name in names] for result in results]
    last = [name.rpartition(".")[2] for name in names]
    headings = [short if last.count(short) == 1 else name for name, short in zip(names, last, strict=True)]
    return "\n".join(aligned([[heading.replace("_", " ") for heading in headings], *rows], left=1))


def _part(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.{0 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def document(value: Any) -> Any:
    """Convert a value for JSON: dataclasses become dictionaries of fields and properties, floats get six digits."""
    if is_dataclass(value) and not isinstance(value, type):
        kinds = vars(type(value)).items()
        computed = [name for name, kind in kinds if isinstance(kind, property | cached_property)]
        return {name: document(getattr(value, name)) for name in [*(field.name for field in fields(value)), *computed]}
    if isinstance(value, Mapping):
        return {key: document(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [document(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


@contextmanager
def job_process(environment: Mapping[str, str], *, log: Path) -> Iterator[Run]:
    """Start a process; yield a function that runs a job in the process, and returns its result or raises JobFailed.

    The process and its JVM write to the log. Both end with the block, so that the next case does not count the JVM's
    last requests. Arguments are sent through a pipe, because ``ps`` would show their secrets.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=_prepare, initargs=(environment, log)) as pool:

        def run(job: Run, *arguments: Any) -> Any:
            try:
                return pool.submit(_run, job, *arguments).result()
            except BrokenProcessPool:
                what = "the process that runs the job ended early"
                raise JobFailed(what, where=str(log), hint="read this log; often memory ran out") from None
            except LakefeedError as error:
                raise JobFailed(error.what, where=error.where or str(log), hint=error.hint) from None

        try:
            yield run
            with suppress(JobFailed):
                run(_end_jvm)
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _prepare(environment: Mapping[str, str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.environ.update(environment)


def _run(job: Run, *arguments: Any) -> Any:
    try:
        return job(*arguments)
    except Exception as error:
        traceback.print_exc()
        raise translate(error) from None


def _end_jvm() -> None:
    """Stop Spark if it runs, and wait until the JVM has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkSession.builder.getOrCreate().stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # At the end of its input, the JVM exits.
    gateway.proc.wait(_JVM_SECONDS)
