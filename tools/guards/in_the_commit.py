"""What the catalog checks in the moment of a commit."""

from __future__ import annotations

from tools.guards.guard import java

CHECK = "tests/spark/test_commit_check.py::test_"
REST = "tests/spark/test_rest_commits.py::test_"
MOVES = "tests/spark/test_moves.py::test_"

IN_THE_COMMIT = (
    java(
        "continuity: faults refuse a commit",
        "commit/CheckedOperations",
        "if (!faults.isEmpty()) {",
        "if (false) {",
        f"{CHECK}a_batch_lands_only_where_the_last_one_ended",
    ),
    java(
        "continuity: a gap",
        "commit/Ledger",
        "start != ended.asLong())",
        "start < ended.asLong())",
        f"{CHECK}a_batch_lands_only_where_the_last_one_ended",
    ),
    java(
        "continuity: an overlap",
        "commit/Ledger",
        "start != ended.asLong())",
        "start > ended.asLong())",
        f"{CHECK}a_batch_lands_only_where_the_last_one_ended",
    ),
    java(
        "continuity: a range of dead letters twice",
        "commit/Ledger",
        "(sparse ? start < ended.asLong() :",
        "(sparse ? false :",
        f"{CHECK}empty_batches_move_nothing_and_sparse_ones_may_leave_out",
    ),
    java(
        "continuity: a partition left out",
        "commit/Ledger",
        "if (!left && ranges.path",
        "if (false && ranges.path",
        f"{CHECK}a_batch_lands_only_where_the_last_one_ended",
    ),
    java(
        "topic id: another topic of the same name",
        "commit/Ledger",
        "boolean another = !id.isEmpty()",
        "boolean another = false && !id.isEmpty()",
        f"{CHECK}a_batch_lands_only_where_the_last_one_ended",
    ),
    java(
        "fence: a driver that was replaced commits",
        "commit/CheckedOperations",
        "if (taken != null && !taken.equals(fence)) {",
        "if (false) {",
        f"{CHECK}only_the_driver_that_took_the_fence_last_can_commit",
    ),
    java(
        "fence: an older one is taken again",
        "commit/CheckedOperations",
        "&& number(fence) <= number(before)) {",
        "&& false) {",
        f"{CHECK}only_the_driver_that_took_the_fence_last_can_commit",
        f"{CHECK}two_that_take_the_fence_together_get_different_ones",
    ),
    java(
        "fence: ALTER TABLE goes past the check",
        "commit/FeedCatalog",
        "&& set.property().startsWith(Ledger.FENCES)) {",
        "&& false) {",
        f"{CHECK}only_the_driver_that_took_the_fence_last_can_commit",
        f"{CHECK}two_that_take_the_fence_together_get_different_ones",
    ),
    java(
        "fence: of replays",
        "commit/CheckedOperations",
        "checkFence(base, summary, replayOf + Ledger.REPLAYS);",
        "",
        f"{CHECK}only_the_replay_that_took_its_fence_last_can_commit",
    ),
    java(
        "fence: of backfills",
        "commit/CheckedOperations",
        "checkFence(base, summary, feed + Ledger.BACKFILLS);",
        "",
        f"{MOVES}backfills_have_a_fence_of_their_own",
    ),
    java(
        "fence: taken where the catalog guards no properties",
        "commit/FeedTable",
        "if (!guarded) {",
        "if (false) {",
        f"{REST}a_commit_that_was_on_its_way_when_the_fence_was_taken_does_not_land",
    ),
    java(
        "lost answer: a server's error for a commit that has landed",
        "commit/CheckedOperations",
        "if (unanswered instanceof CleanableFailure || !hasLanded(added, unanswered)) {",
        "if (true) {",
        f"{REST}whatever_the_answer_to_a_commit_the_batch_is_there_once",
    ),
    java(
        "backfill: what the table has already",
        "commit/CheckedOperations",
        "if (overlap != null) {",
        "if (false) {",
        f"{MOVES}a_backfill_lands_only_what_the_table_has_not_and_the_feed_will_not_read",
    ),
    java(
        "backfill: what the feed will read itself",
        "commit/CheckedOperations",
        "if (!ahead.isEmpty()) {",
        "if (false) {",
        f"{MOVES}a_backfill_lands_only_what_the_table_has_not_and_the_feed_will_not_read",
    ),
    java(
        "move: from where the feed does not stand",
        "commit/Ledger",
        "move.path(0).asLong() != ended.asLong()) {",
        "false) {",
        f"{MOVES}a_move_must_start_where_the_feed_stands",
    ),
    java(
        "lost answer: a commit that has landed is tried again",
        "commit/CheckedOperations",
        "if (before != null && before.commit().is(Ledger.Commit.of(snapshot))) {",
        "if (false) {",
        f"{CHECK}the_same_commit_tried_again_is_done_already",
        f"{CHECK}a_commit_whose_answer_is_lost_has_landed_once",
    ),
    java(
        "lost answer: another batch under the same id",
        "commit/Ledger",
        "commitId.equals(other.commitId) && ranges.equals(other.ranges);",
        "commitId.equals(other.commitId);",
        f"{CHECK}the_same_commit_tried_again_is_done_already",
    ),
    java(
        "lost answer: what came on top is taken back",
        "commit/CheckedOperations",
        "return unanswered.contains(target.snapshotId());",
        "return false;",
        f"{CHECK}a_lost_answer_takes_no_commit_back_that_came_on_top",
    ),
    java(
        "position: kept where snapshots expire",
        "commit/CheckedOperations",
        "positions.put(Ledger.POSITION + feed, Position.after(before, snapshot, feed).toJson());",
        "",
        f"{CHECK}the_position_outlives_its_snapshots",
    ),
    java(
        "rollback: the position follows",
        "commit/CheckedOperations",
        "if (movedAway(base, changed)) {",
        "if (false) {",
        f"{CHECK}the_position_follows_a_rollback_even_if_the_snapshots_go_then",
    ),
    java(
        "rollback: past all that is known of the feed",
        "commit/Position",
        "return Ledger.ROLLED_BACK;",
        "return base.properties().get(Ledger.POSITION + feed);",
        f"{CHECK}history_cut_then_rolled_back_then_cut_again",
    ),
    java(
        "rollback: by another engine",
        "commit/Ledger",
        "return oldest != null && oldest.parentId() != null && oldest.sequenceNumber() > sequenceNumber;",
        "return true;",
        f"{CHECK}the_same_by_an_engine_without_the_check",
    ),
    java(
        "dead letters: as many as the batch counts",
        "commit/CheckedOperations",
        "if (rows != null && !rows.equals(addedRows)) {",
        "if (false) {",
        f"{CHECK}empty_batches_move_nothing_and_sparse_ones_may_leave_out",
    ),
)
