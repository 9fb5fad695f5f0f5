"""The position of a table follows from the announced files, and from whether the sink has committed them."""

import pytest

from lakefeed.errors import CheckpointMismatch
from lakefeed.offsets.ranges import Partition
from lakefeed_adopt.iceberg_connect import AnnouncedFile, Announcement, Fate, describe_fates, find_positions

P0, P1 = ("t", 0), ("t", 1)
IN: Fate = "in the table"


def announced(fate: Fate, **ends: int) -> tuple[Announcement, Fate]:
    """Return a transaction of one file, or without a file for "nothing"; ``p0=5``: partition 0 was read up to 5."""
    files = [] if fate == "nothing" else [AnnouncedFile("s3://x", 10, 0, 0)]
    return Announcement(files=files, ends={("t", int(name[1:])): at for name, at in ends.items()}), fate


def positions(
    *fates: tuple[Announcement, Fate], reached: dict[Partition, int], is_whole: bool = True
) -> dict[Partition, int]:
    return find_positions(fates, reached, where="control", is_whole=is_whole)


def test_if_no_file_is_missing_the_position_is_that_of_the_consumer_group() -> None:
    fates = announced(IN, p0=5), announced("nothing", p0=9), announced(IN, p1=4)
    assert positions(*fates, reached={P0: 9, P1: 4}) == {P0: 9, P1: 4}
    # The group has expired, so the end offsets in the control topic are the position.
    assert positions(*fates, reached={}) == {P0: 9, P1: 4}
    # A user has set back the offset of the group, so this offset is the position.
    assert positions(*fates, reached={P0: 2, P1: 4}) == {P0: 2, P1: 4}


def test_the_position_is_before_the_first_uncommitted_file() -> None:
    fates = (
        announced(IN, p0=5),
        announced("pending", p0=8, p1=4),
        announced("nothing", p0=9),
        announced("pending", p0=12),
    )
    # No file of partition 1 is in the table.
    assert positions(*fates, reached={P0: 12, P1: 4}) == {P0: 5}
    assert list(describe_fates(fates)) == [
        "the sink has written 2 files with 20 rows that it never committed to the table"
    ]


def test_transactions_are_sorted_by_end_offset() -> None:
    assert positions(announced("pending", p0=8), announced(IN, p0=5), reached={P0: 8}) == {P0: 5}


def test_pending_files_are_refused_if_retention_has_removed_earlier_events() -> None:
    with pytest.raises(CheckpointMismatch, match="retention has removed the events"):
        positions(announced("pending", p0=8), reached={P0: 8}, is_whole=False)
    assert positions(announced(IN, p0=5), announced("pending", p0=8), reached={P0: 8}, is_whole=False) == {P0: 5}


def test_pending_files_are_refused_if_later_files_are_in_the_table() -> None:
    with pytest.raises(
        CheckpointMismatch, match="t-0 wait to be committed, but later files are in the table"
    ) as refused:
        positions(announced("pending", p0=5), announced(IN, p0=8), reached={P0: 8})
    assert "start the sink once more" in (refused.value.hint or "")


def test_a_note_names_the_records_of_files_that_the_sink_has_lost() -> None:
    fates = announced("lost", p0=5, p1=3), announced(IN, p0=8)
    assert positions(*fates, reached={P0: 8, P1: 3}) == {P0: 8}
    first, second = describe_fates(fates)
    assert "1 file with 10 rows" in first
    assert second.startswith("t-0: the sink has lost the records from its first record to 5")
