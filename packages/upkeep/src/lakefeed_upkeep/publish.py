"""Publish the branch that a feed lands in, or discard its unpublished rows."""

from __future__ import annotations

from lakefeed.errors import ConfigError
from lakefeed.feed.feed import Feed
from lakefeed.lazy import SparkSession
from lakefeed.ledger.continuity import REWIND
from lakefeed.ledger.publication import Publication
from lakefeed.messages.pages import page_command
from lakefeed.sinks.definition import TablePublisher

PAGE = "write-audit-publish"


def publish_branch(feed: Feed, spark: SparkSession, *, dry_run: bool = False) -> Publication:
    """Audit a branch, and publish it if the audit passes; the feed may run meanwhile. ``dry_run`` only audits.

    Raises the errors of ``Publisher.publish``; a failed audit is no error, but part of the result.
    """
    return _publisher(feed, spark).publish(dry_run=dry_run)


def discard_branch(feed: Feed, spark: SparkSession) -> None:
    """Drop the unpublished rows, and stop a running driver; the feed's next start reads their records again.

    After an interrupted discard, the feed's next start is refused, and the error names the command that completes the
    discard: ``lakefeed offsets rewind --to table``.
    """
    publisher, table = _publisher(feed, spark), feed.ledger_table(spark)
    table.take_fence(prefix=REWIND)
    publisher.discard()
    position = table.position()
    if feed.config.dead_letters is not None:
        feed.dead_letter_store(spark).follow(position.ranges if position is not None else None, moved=True)
    if feed.config.checkpoint and not feed.config.has_many_tables:
        claim = feed.claim(spark)
        claim.discard()
        claim.note(move=position.reset_snapshot_id if position is not None else None)


def _publisher(feed: Feed, spark: SparkSession) -> TablePublisher:
    publisher = feed.sink_definition.publisher(spark)
    if publisher is None:
        raise ConfigError(
            f"feed '{feed.config.name}' lands in no branch, so there is nothing to publish",
            where=feed.identity.owner.sink,
            hint=f"set sink.iceberg.branch: staging, and see {page_command('write-audit-publish')}",
        )
    return publisher
