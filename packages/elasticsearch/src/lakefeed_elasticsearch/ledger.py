"""The ledger of a feed on a search server: one document per feed and index, in ``lakefeed_feeds``.

Drivers change this document only by compare-and-set (``if_seq_no``, ``if_primary_term``), so the server refuses the
later of two concurrent changes. Every fence and commit raises the document's ``number``, which is the version of the
documents that the current batch writes. The server refuses documents of a replaced driver, because their version is
lower.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakefeed.clients.spark.errors import ONE_PLACE
from lakefeed.errors import CheckpointMismatch, ConfigError, TableBusy
from lakefeed.ledger.continuity import ServerLedger, StoredCommit, next_fence, recreated_topic
from lakefeed.ledger.outcomes import counts_by_partition
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import PositionReset
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.sinks.base import FeedEntry
from lakefeed.sinks.definition import Commit, Position
from lakefeed_elasticsearch.layout import IndexLayout
from lakefeed_elasticsearch.server import Server, path_of, refusal
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig

FEEDS = "lakefeed_feeds"
TRIES = 20
INDEX = {
    "settings": {"number_of_shards": 1, "auto_expand_replicas": "0-1"},
    "mappings": {
        "dynamic": False,
        "properties": {
            "feed": {"type": "keyword"},
            "target": {"type": "keyword"},
            "number": {"type": "long"},
        },
    },
}


@dataclass(frozen=True)
class LedgerDocument(FeedEntry):
    """The feed's document; a write with ``condition`` is refused if another driver has changed the document since."""

    document: Mapping[str, Any]
    condition: str

    @property
    def number(self) -> int:
        """The version of the documents that the current batch writes."""
        return int(self.document["number"])

    @property
    def last(self) -> StoredCommit | None:
        if (found := self.document.get("commit")) is None:
            return None
        commit = Commit(
            feed=self.document["feed"],
            batch_id=int(found["batch_id"]),
            ranges=OffsetRanges.from_json(found["ranges"]),
            fence=found["fence"],
            snapshot_id=int(found["number"]),
            rows=int(found["rows"]),
            counts=counts_by_partition(found["counts"]),
            committed_at=float(found["committed_at"]),
            move=None if found["moved"] is None else PositionReset.from_json(found["moved"]),
        )
        return StoredCommit(commit, str(found["commit_id"]))


class ElasticsearchLedger(ServerLedger):
    """The newest commit of one feed into one index."""

    def __init__(self, server: Server, sink: ElasticsearchSinkConfig, feed: str) -> None:
        super().__init__(feed, where=sink.where)
        self._server = server
        self._layout = IndexLayout(server, sink)
        self._target = sink.index
        self.path = path_of(FEEDS, "_doc", f"{sink.index}:{feed}")

    def ensure(self) -> None:
        """Create the ledger's index and the feed's document if they are missing."""
        if self._server.ask("HEAD", path_of(FEEDS)).status == 404:
            self._layout.change("PUT", path_of(FEEDS), INDEX)
        if self.standing() is None:
            # Versions begin at the time in ms, so they are above the versions of documents that remain from a lost
            # ledger.
            first = {"feed": self.feed, "target": self._target, "number": int(time.time() * 1000)}
            self._put(first, "op_type=create")

    def standing(self) -> LedgerDocument | None:
        answer = self._server.ask("GET", self.path)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise refusal(answer, where=self.where)
        found, document = answer.document, answer.document["_source"]
        return LedgerDocument(
            fence=document.get("fence"),
            reader=document.get("reader"),
            keyed=document.get("keyed"),
            topics=json.loads(document.get("topics") or "{}"),
            document=document,
            condition=f"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}",
        )

    def note(self, **entries: str | None) -> None:
        self._change(lambda document: entries)

    def take_fence(self) -> str:
        """Take the next fence; the server then refuses documents and commits of the driver with the previous fence."""
        taken = self._change(
            lambda document: {"number": int(document["number"]) + 1, "fence": next_fence(document.get("fence"))}
        )
        return str(taken["fence"])

    def fence_taken(self) -> str | None:
        standing = self.standing()
        return standing.fence if standing else None

    def position(self) -> Position | None:
        """Return the feed's position; None if the index does not exist or the feed has not committed."""
        standing = self.standing() if self._layout.describe() is not None else None
        return None if standing is None or (last := standing.last) is None else last.position

    def commits(self) -> Iterator[Commit]:
        """Yield the feed's newest commit, which is the only one in this ledger."""
        standing = self.standing()
        if standing is not None and (last := standing.last) is not None:
            yield last.commit

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        if delete_where is not None:
            hint = "name a new index and another checkpoint location"
            raise ConfigError("a rewind cannot delete documents of a search server", where=self.where, hint=hint)
        while (standing := self.begin(commit, commit_id=commit_id)) is not None:
            if self.write(standing, commit, commit_id=commit_id):
                return

    def begin(self, commit: Commit, *, commit_id: str) -> LedgerDocument | None:
        """Return the ledger's document for the commit to change; None if the batch is already committed.

        Raises the errors of ``admit``.
        """
        standing = self.standing()
        if standing is None:
            raise self.removed(FEEDS)
        admitted = self.admit(commit, commit_id=commit_id, last=standing.last, fence=standing.fence)
        return standing if admitted is CommitCheck.NEW else None

    def require_same_topics(self, standing: LedgerDocument, commit: Commit) -> None:
        """Refuse records of a recreated topic: their documents would overwrite documents of the deleted topic."""
        if (topic := recreated_topic(standing.topics, commit.ranges)) is not None:
            raise CheckpointMismatch(
                f"topic {topic} was recreated: its documents would have the ids of the earlier topic's documents, and "
                "overwrite them",
                where=self.where,
                hint="name a new index and another checkpoint location",
            )

    def write(self, standing: LedgerDocument, commit: Commit, *, commit_id: str, counts: str = "{}") -> bool:
        """Write a commit; return False if the document has changed since ``begin``: then call ``begin`` again."""
        written = {
            "batch_id": commit.batch_id,
            "commit_id": commit_id,
            "number": standing.number,
            "fence": commit.fence,
            "ranges": commit.ranges.to_json(),
            "counts": counts,
            "rows": commit.rows,
            "moved": None if commit.move is None else commit.move.to_json(commit.ranges),
            "committed_at": time.time(),
        }
        # A takeover or a move writes no documents, so the index has no documents of the new topics yet.
        topics = {**(commit.ranges.topic_ids if commit.move is None else {}), **standing.topics}
        document = {
            **standing.document,
            "number": standing.number + 1,
            "topics": json.dumps(topics, separators=(",", ":")),
            "commit": written,
        }
        return self._put(document, standing.condition)

    def _change(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Mapping[str, Any]:
        for _ in range(TRIES):
            standing = self.standing()
            assert standing is not None  # ensure() has created the document.
            changed = {**standing.document, **change(standing.document)}
            if self._put(changed, standing.condition):
                return changed
        raise TableBusy(f"other drivers have changed the feed's ledger {TRIES} times", where=self.where, hint=ONE_PLACE)

    def _put(self, document: Mapping[str, Any], condition: str) -> bool:
        """Write the ledger's document; return False if it has changed since it was read."""
        answer = self._server.ask("PUT", f"{self.path}?{condition}", document)
        if answer.status == 409:
            return False
        if answer.status >= 300:
            raise refusal(answer, where=self.where)
        return True
