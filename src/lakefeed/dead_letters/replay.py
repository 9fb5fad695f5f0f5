"""The way back: dead letters decoded with today's schema and policy, landed once, and removed; or just removed.

A replay is three commits: the letters that can be rows now are marked with the replay's id; their rows are appended to
the feed's table in one commit that carries the id; the marked letters are deleted. Wherever it is cut off, the next
replay looks whether the table has the marked id, and then deletes the letters, or takes the mark away and begins again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.commit.ledger import REPLAY, REPLAY_OF, Ledger
from lakefeed.dead_letters.letters import Choice
from lakefeed.decode import RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakefeed.landing import Landing

CHOSEN = """WHERE feed = :feed AND replay IS NULL
AND (:wanted_topic IS NULL OR topic = :wanted_topic)
AND (:wanted_partition IS NULL OR partition = :wanted_partition)
AND (:wanted_offset IS NULL OR offset = :wanted_offset)
AND (:wanted_schema_id IS NULL OR schema_id = :wanted_schema_id)
AND (:wanted_reason IS NULL OR contains(reason, :wanted_reason))"""
RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True)
class Replayed:
    """What a replay did.

    Attributes:
        replay_id: marks its commit in the table; None if there was nothing to land.
        rows: rows landed.
        skipped: letters that today's policy leaves out.
        still_dead: letters that cannot be rows today either.
        finished_earlier: letters removed because an earlier replay, cut off after its commit, had landed them.
    """

    replay_id: str | None
    rows: int
    skipped: int
    still_dead: int
    finished_earlier: int


@dataclass(frozen=True)
class ReplayCommit:
    """What the commit of a replay carries; no offset ranges, since it moves no position."""

    feed: str
    replay_id: str

    def properties(self) -> dict[str, str]:
        """For the snapshot's summary."""
        return {REPLAY: self.replay_id, REPLAY_OF: self.feed}


class Replay:
    """Replays or drops the dead letters of one feed.

    Args:
        spark: the session.
        letters: the dead-letter table.
        feed: the feed's name.
    """

    def __init__(self, spark: SparkSession, letters: str, *, feed: str) -> None:
        self._spark = spark
        self._letters = letters
        self._feed = feed

    def run(
        self,
        landing: Landing,
        ledger: Ledger,
        choice: Choice,
        *,
        step: Callable[[str], None] = lambda done: None,
    ) -> Replayed:
        """Lands what can be landed now.

        Args:
            landing: the feed's, begun.
            ledger: of the feed's table.
            choice: which letters.
            step: told when a commit is done; for tests that cut a replay off.
        """
        finished = self.settle(ledger)
        judged = landing.judged(self.records(choice))
        verdicts = judged.select(
            *(f"{RECORD}.record.{name}" for name in ("topic", "partition", "offset")),
            f"{RECORD}.reason",
            f"{RECORD}.skipped",
        ).localCheckpoint()
        good = verdicts.filter("reason IS NULL")
        landable, all_letters = good.count(), verdicts.count()
        if landable == 0:
            return Replayed(None, 0, 0, all_letters, finished)
        replay_id = uuid.uuid4().hex
        good.createOrReplaceTempView("lakefeed_replayed")
        self._sql(
            "MERGE INTO IDENTIFIER(:letters) l USING lakefeed_replayed r "
            "ON l.feed = :feed AND l.topic = r.topic AND l.partition = r.partition AND l.offset = r.offset "
            "WHEN MATCHED THEN UPDATE SET replay = :replay",
            replay=replay_id,
        )
        step("marked")
        counts = landing.land_replay(self.marked(replay_id), ReplayCommit(self._feed, replay_id))
        step("landed")
        self._delete_marked(replay_id)
        return Replayed(replay_id, counts.rows, counts.skipped, all_letters - landable, finished)

    def settle(self, ledger: Ledger) -> int:
        """Ends a replay that was cut off; returns how many letters it had landed."""
        ids = [row.replay for row in self._of_feed().filter("replay IS NOT NULL").select("replay").distinct().collect()]
        finished = 0
        for replay_id in ids:
            if ledger.has_replay(replay_id):
                finished += self.marked(replay_id).count()
                self._delete_marked(replay_id)
            else:
                self._sql(
                    "UPDATE IDENTIFIER(:letters) SET replay = NULL WHERE feed = :feed AND replay = :replay",
                    replay=replay_id,
                )
        return finished

    def drop(self, choice: Choice) -> int:
        """Deletes letters for good; returns how many."""
        count = self._sql(f"SELECT replay FROM IDENTIFIER(:letters) {CHOSEN}", **_arguments(choice)).count()  # noqa: S608
        self._sql(f"DELETE FROM IDENTIFIER(:letters) {CHOSEN}", **_arguments(choice))  # noqa: S608
        return count

    def records(self, choice: Choice) -> DataFrame:
        """The letters that are meant, as the records that they were."""
        chosen = self._sql(f"SELECT * FROM IDENTIFIER(:letters) {CHOSEN}", **_arguments(choice))  # noqa: S608
        return chosen.select(*RECORD_COLUMNS)

    def marked(self, replay_id: str) -> DataFrame:
        """The records of one replay."""
        from pyspark.sql import functions as sf

        return self._of_feed().filter(sf.col("replay") == replay_id).select(*RECORD_COLUMNS)

    def _of_feed(self) -> DataFrame:
        from pyspark.sql import functions as sf

        return self._spark.table(self._letters).filter(sf.col("feed") == self._feed)

    def _delete_marked(self, replay_id: str) -> None:
        self._sql("DELETE FROM IDENTIFIER(:letters) WHERE feed = :feed AND replay = :replay", replay=replay_id)

    def _sql(self, statement: str, **arguments: Any) -> DataFrame:
        return self._spark.sql(statement, args={"letters": self._letters, "feed": self._feed, **arguments})


def _arguments(choice: Choice) -> dict[str, Any]:
    named = ("topic", "partition", "offset", "schema_id", "reason")
    return {f"wanted_{name}": getattr(choice, name) for name in named}
