"""Writers and maintenance of a table exclude each other; a waiting writer comes before maintenance."""

import threading
from contextlib import AbstractContextManager

import pytest

from lakefeed.clients.iceberg.write_lock import TRIES, Turns, run_in_turn, turns_at

CONFLICT = "ValidationException: Found conflicting files that can contain records matching true"


def test_all_callers_get_the_same_lock_for_a_table() -> None:
    assert turns_at("lake.a.b") is turns_at("lake.a.b")
    assert turns_at("lake.a.b") is not turns_at("lake.a.c")


def test_a_waiting_writer_comes_before_waiting_maintenance() -> None:
    turns = Turns()
    order: list[str] = []
    first_piece_may_end, writer_may_end = threading.Event(), threading.Event()

    def take(name: str, turn: AbstractContextManager[None], until: threading.Event | None = None) -> threading.Thread:
        began = threading.Event()

        def run() -> None:
            began.set()
            with turn:
                order.append(name)
                if until is not None:
                    assert until.wait(30)

        thread = threading.Thread(target=run)
        thread.start()
        assert began.wait(30)
        return thread

    first = take("first piece", turns.maintaining(), first_piece_may_end)
    while order != ["first piece"]:
        first.join(0.01)
    writer = take("writer", turns.writing(), writer_may_end)
    while not turns._writers:
        writer.join(0.01)
    second = take("second piece", turns.maintaining())
    first_piece_may_end.set()
    first.join(30)
    while len(order) < 2:
        writer.join(0.01)
    second.join(0.1)
    assert order == ["first piece", "writer"]
    writer_may_end.set()
    second.join(30)
    writer.join(30)
    assert order == ["first piece", "writer", "second piece"]


def test_two_writers_do_not_wait_for_each_other() -> None:
    turns = Turns()
    with turns.writing(), turns.writing():
        assert turns._writers == 2
    with turns.maintaining():
        assert not turns._writers


def outcome(*failures: str) -> tuple[str, int]:
    """Run a statement that first fails with `failures`; return its result, and the number of pauses requested."""
    left, pauses = list(failures), list[None]()

    def statement() -> str:
        if left:
            raise RuntimeError(left.pop(0))
        return "done"

    return run_in_turn("lake.a.t", statement, ask_for_quiet=lambda: pauses.append(None)), len(pauses)


@pytest.mark.parametrize("conflicts", [0, 1, TRIES - 1])
def test_a_statement_is_retried_after_a_conflict(conflicts: int) -> None:
    assert outcome(*[CONFLICT] * conflicts) == ("done", conflicts)


def test_the_last_conflict_and_any_error_other_than_a_conflict_are_raised() -> None:
    with pytest.raises(RuntimeError, match="Found conflicting files"):
        outcome(*[CONFLICT] * TRIES)
    with pytest.raises(RuntimeError, match="lakefeed refuses the commit"):
        outcome("lakefeed refuses the commit: another driver has taken over")
