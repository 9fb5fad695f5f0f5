"""Publish the branch that a feed lands in, or give up what is not published."""

from __future__ import annotations

from lakefeed.errors import ConfigError
from lakefeed.feed.feed import Feed
from lakefeed.lazy import SparkSession
from lakefeed.ledger.continuity import REWIND
from lakefeed.ledger.publication import Publication
from lakefeed.messages.pages import page_command
from lakefeed.sinks.definition import TablePublisher


def publish_branch(feed: Feed, spark: SparkSession, *, dry_run: bool = False) -> Publication:
    """Audit the branch, and publish it if the audit passes; may run beside the feed. ``dry_run`` only audits.

    Raises what ``Publisher.publish`` raises; an audit that fails is part of the result.
    """
    return _publisher(feed, spark).publish(dry_run=dry_run)


def discard_branch(feed: Feed, spark: SparkSession) -> None:
    """Drop the rows that are not published: the feed's next start reads their records again.

    A driver that runs is stopped. A crash in between leaves a feed that its next start refuses with the command that
    completes this one: ``lakefeed offsets rewind --to table``.
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
            hint=f"sink.iceberg.branch: staging; {page_command('write-audit-publish')} says what follows",
        )
    return publisher
