"""Every kind of run uses ``FeedStart``, and only ``FeedStart`` and ``lakefeed status`` collect its facts."""

import ast
from pathlib import Path

import lakefeed
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.feed.open import FeedIdentity, collect_facts
from lakefeed.feed.recovery import decide
from lakefeed.ledger.checkpoint import CheckpointState, Owner
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.definition import StoredState

PACKAGE = Path(lakefeed.__file__).parent
OPENS = "feed/open.py"
ASKS = "operations/status.py"
RUNS = {"feed/streaming.py", "feed/real_time.py", "feed/bounded.py", "feed/multi_table/table.py", "dataframes.py"}


def callers(name: str) -> set[str]:
    """Return the files that call a function of this name."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called == name:
                    found.add(str(file.relative_to(PACKAGE)))
    return found


def test_only_a_start_and_the_status_collect_facts() -> None:
    assert callers("collect_facts") == {OPENS, ASKS}


def test_every_kind_of_run_uses_feed_start() -> None:
    assert callers("FeedStart") == RUNS


def test_a_commit_while_facts_are_collected_does_not_look_like_lost_records() -> None:
    end = 100

    def position() -> Position:
        # The driver of the feed commits the current end offset of the topic; then new records arrive.
        nonlocal end
        end += 10
        return Position(OffsetRanges((OffsetRange("trips", 0, 0, end),), {"trips": "id"}), snapshot_id=1)

    def describe(position: Position | None) -> dict[str, TopicDescription | None]:
        partition = PartitionDescription(id=0, leader=1, start_offset=0, end_offset=end)
        return {"trips": TopicDescription(name="trips", topic_id="id", partitions=(partition,))}

    facts = collect_facts(
        FeedIdentity(owner=Owner(feed="f", sink="iceberg lake.nyc.trips")),
        StoredState(keeps_ledger=True, position=position),
        checkpoint=CheckpointState(),
        note=None,
        describe=describe,
        stateful=False,
    )
    assert not decide(facts).data_loss
