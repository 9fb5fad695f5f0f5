"""Find the records that make a batch fail."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.feed.failing_records import find_failing, isolate, kind_of_failure, listed
from lakefeed.offsets.ranges import OffsetRange

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any)


@given(lengths, st.data())
def test_the_failing_record_is_found_in_few_attempts(counts: list[int], data: st.DataObject) -> None:
    ranges = [OffsetRange("t", number, 100, 100 + count) for number, count in enumerate(counts)]
    bad = data.draw(st.sampled_from([(each.partition, at) for each in ranges for at in range(each.start, each.end)]))
    read = []

    def fails(some: Sequence[OffsetRange]) -> bool:
        read.append(sum(each.records for each in some))
        return any(each.partition == bad[0] and each.start <= bad[1] < each.end for each in some)

    assert find_failing(fails, ranges) == (OffsetRange("t", bad[0], bad[1], bad[1] + 1),)
    # First all records are tried, then both halves of each failing part; of an odd number, one half has a record more.
    records = sum(counts)
    assert sum(read) <= 3 * records + records.bit_length()


def test_no_record_is_blamed_for_a_failure_that_it_did_not_cause() -> None:
    ranges = [OffsetRange("t", 0, 0, 8), OffsetRange("t", 1, 5, 5)]
    assert find_failing(lambda _: False, ranges) == ()
    # The records fail only together, as duplicates of a key do.
    together = find_failing(lambda some: sum(each.records for each in some) == 8, ranges)
    assert together == (OffsetRange("t", 0, 0, 8),)
    # The time limit has passed after the first attempt.
    clock = iter([0.0, 400.0])
    assert find_failing(lambda _: True, ranges, clock=lambda: next(clock)) == (OffsetRange("t", 0, 0, 8),)
    assert find_failing(lambda _: True, []) == ()


def test_the_description_of_a_failure_has_no_values_of_records() -> None:
    text = '[CAST_INVALID_INPUT] The value \'secret\' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018'
    assert kind_of_failure(text) == "[CAST_INVALID_INPUT]"
    assert kind_of_failure("java.lang.IllegalStateException: secret") == "java.lang.IllegalStateException"


def test_a_list_of_ranges_has_offsets_and_at_most_five_partitions() -> None:
    ranges = [OffsetRange("t", number, 4, 4 + number) for number in range(8)]
    assert listed(ranges[:3]) == "t-1 offset 4, t-2 offsets [4, 6)"
    assert listed(ranges).endswith("and 2 more partitions")


@given(lengths, st.data())
def test_exactly_the_failing_records_are_isolated(counts: list[int], data: st.DataObject) -> None:
    ranges = [OffsetRange("t", number, 100, 100 + count) for number, count in enumerate(counts)]
    records = [(each.partition, at) for each in ranges for at in range(each.start, each.end)]
    bad = data.draw(st.sets(st.sampled_from(records), max_size=5))

    def why(some: Sequence[OffsetRange]) -> str | None:
        fail = any(each.partition == part and each.start <= at < each.end for part, at in bad for each in some)
        return "no number" if fail else None

    expected = {OffsetRange("t", part, at, at + 1): "no number" for part, at in bad}
    assert isolate(why, ranges, works=lambda: True) == expected


def test_no_record_is_isolated_if_all_records_fail_or_only_one_attempt_fails() -> None:
    ranges = [OffsetRange("t", 0, 0, 4)]
    assert isolate(lambda _: "down", ranges, works=lambda: False) == {}
    # A short failure of the network: a later attempt with the same record succeeds.
    answers = iter(["once", "once", "once", None])
    assert isolate(lambda _: next(answers, None), ranges, works=lambda: True) == {}
    # The records fail only together.
    together = isolate(lambda some: "both" if sum(each.records for each in some) == 4 else None, ranges, works=bool)
    assert together == {}


def test_whole_ranges_are_isolated_when_the_time_limit_has_passed() -> None:
    clock = iter([0.0, *([400.0] * 9)])
    ranges = [OffsetRange("t", 0, 0, 4)]
    found = isolate(lambda _: "bad", ranges, works=lambda: True, clock=lambda: next(clock))
    assert found == {ranges[0]: "bad; at least one of 4 records that were not tried one by one"}
