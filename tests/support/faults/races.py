"""Start two drivers of one feed within a second, with pauses between their steps."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.faults.drivers import Driver, driver

REPLACED = "DriverReplaced: another driver has taken over this feed"
STEPS = ("begin_writer", "decide_again", "apply", "start_query", "write_batch", "commit_rows")


@contextmanager
def two_drivers(environment: Mapping[str, str], folder: Path) -> Iterator[list[Driver]]:
    with ExitStack() as running:
        yield [
            running.enter_context(
                driver(
                    "tests.support.faults.driver_child", environment=environment, log=folder / f"driver-{number}.log"
                )
            )
            for number in range(2)
        ]


def said(both: list[Driver], words: str) -> int:
    return sum(each.log.read_text().count(words) for each in both)


def draw_pauses(dice: random.Random) -> list[dict[str, float]]:
    """Return the longest pause before each step, for both drivers; most steps have no pause."""
    return [{step: dice.choice((0.0, 0.0, dice.uniform(0.1, 3.0))) for step in STEPS} for _ in range(2)]


def run_together(
    both: Sequence[Driver], file: Path, pauses: Sequence[Mapping[str, float]], *, apart: float
) -> list[str | None]:
    """Run both drivers, started `apart` seconds apart; return the outcome of each driver: None, or the error."""
    for each, seconds in zip(both, pauses, strict=True):
        each.prepare(file, pauses=seconds)
    both[0].tell(str(max(0.0, apart)))
    both[1].tell(str(max(0.0, -apart)))
    return [each.ended() for each in both]
