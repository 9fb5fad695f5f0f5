"""Guards that act before a feed starts, and guards of ``lakefeed verify``."""

from __future__ import annotations

from tools.guards.guard import plugin, python

START = "tests/unit/feed/test_recovery.py::test_"
REWIND = "packages/repair/tests/unit/test_moves.py::test_"
OFFSETS = "packages/repair/tests/integration/test_offsets.py::test_"
TRAPS = "tests/integration/test_traps.py::test_"
VERIFY = "tests/unit/operations/verify/test_audit.py::test_"

AT_THE_START = (
    python(
        "state: a feed resumes with the checkpoint of another query",
        "feed/recovery",
        "if state.query_id != last.ranges.topic_ids[BATCHES]:",
        "if False:",
        f"{START}a_feed_with_state_is_refused_without_its_checkpoint",
    ),
    python(
        "state: a feed resumes with a checkpoint that was rolled back",
        "feed/recovery",
        "if landed > planned + 1:",
        "if False:",
        f"{START}a_feed_with_state_is_refused_without_its_checkpoint",
    ),
    python(
        "state: a batch has the number of a landed batch but other records",
        "feed/recovery",
        "if landed == planned + 1 and any(",
        "if False and any(",
        f"{START}a_feed_with_state_is_refused_without_its_checkpoint",
    ),
    python(
        "state: a transform without state resumes a feed with state",
        "feed/recovery",
        "        require_no_state(facts)\n",
        "        pass\n",
        f"{START}a_stateless_transform_is_refused_after_a_stateful_transform",
    ),
    python(
        "state: a user's class with other state variables resumes",
        "records/transform",
        'f"{each}; {next(variables)}" if each.startswith(PROCESSOR) else each',
        "each",
        "tests/integration/test_pandas.py::test_the_state_of_a_users_class_resumes_after_a_restart_and_changed_state_is_refused",
    ),
    python(
        "start: the table lacks records that the checkpoint counts as landed",
        "feed/recovery",
        "if ahead := {",
        "if False and {",
        f"{START}a_table_behind_its_checkpoint_is_refused",
    ),
    python(
        "start: an unclean leader has truncated the topic",
        "feed/recovery",
        "elif current.agreed is not None and current.agreed < position:",
        "elif False:",
        f"{START}lost_records_are_skipped_only_with_accept_loss",
    ),
    python(
        "verify: an unclean leader has truncated the topic",
        "operations/verify/audit",
        "if partition.agreed is not None and partition.agreed < end:",
        "if False:",
        f"{VERIFY}a_truncated_topic_is_a_fault_even_if_it_has_grown_beyond_the_tables_position",
    ),
    python(
        "leader epochs: a running feed misses that a leader has truncated the topic",
        "records/sources",
        "if place[1] != epochs[key]",
        "if False",
        "tests/faults/test_three_brokers.py::test_a_feed_refuses_a_topic_that_an_unclean_leader_truncated_until_the_loss_is_accepted",
    ),
    python(
        "leader epochs: equal ranges differ because the leader has changed",
        "offsets/ranges",
        "epoch: int | None = field(default=None, compare=False)",
        "epoch: int | None = field(default=None)",
        "tests/unit/offsets/test_ranges.py::test_ranges_with_and_without_leader_epochs_are_equal",
    ),
    python(
        "start: the checkpoint is older than the table",
        "feed/recovery",
        "if table in (_known(state.end, table), _known(position, table)):",
        "if True:",
        f"{START}decide_resumes_at_the_checkpoint_or_at_the_table",
    ),
    python(
        "start: the checkpoint is damaged",
        "feed/recovery",
        "    if state.damage is not None:\n",
        "    if False:\n",
        f"{START}decide_resumes_at_the_checkpoint_or_at_the_table",
    ),
    python(
        "start: the feed was moved and the checkpoint does not know the move",
        "feed/recovery",
        "if facts.unknown_move:",
        "if False:",
        f"{START}a_move_that_is_missing_in_the_checkpoint_resets_the_checkpoint",
    ),
    python(
        "start: lost records are skipped without --accept-loss",
        "feed/recovery",
        "if not accept_loss:",
        "if False:",
        f"{START}lost_records_are_skipped_only_with_accept_loss",
    ),
    python(
        "start: a loss is accepted without a ledger that stores the loss",
        "feed/recovery",
        "if not facts.keeps_ledger:",
        "if False:",
        f"{START}accept_loss_is_refused_without_a_ledger",
    ),
    python(
        "start: the topic was recreated",
        "feed/recovery",
        "first and first != described.topic_id:",
        "False:",
        f"{START}lost_records_are_skipped_only_with_accept_loss",
    ),
    python(
        "start: retention has removed unread records",
        "feed/recovery",
        "elif position < current.start_offset:",
        "elif False:",
        f"{START}lost_records_are_skipped_only_with_accept_loss",
    ),
    python(
        "start: the topic ends before the feed's position",
        "feed/recovery",
        "elif position > current.end_offset:",
        "elif False:",
        f"{START}lost_records_are_skipped_only_with_accept_loss",
    ),
    python(
        "start: the Parquet sink's log is ahead of the checkpoint",
        "feed/recovery",
        "if logged > planned:",
        "if False:",
        f"{START}a_sinks_log_must_end_at_the_checkpoints_batch",
    ),
    python(
        "start: the Parquet sink's log is behind the checkpoint",
        "feed/recovery",
        "if max(landed, -1) <= logged <= planned:",
        "if logged <= planned:",
        f"{START}a_sinks_log_must_end_at_the_checkpoints_batch",
    ),
    python(
        "start: only the checkpoint's file metadata is missing",
        "ledger/checkpoint",
        """    if METADATA not in names:
        damage""",
        """    if False:
        damage""",
        f"{START}checkpoint_state_finds_damage",
    ),
)

ON_THE_MOVE = (
    plugin(
        "repair",
        "rewind: the topic does not have the requested offset",
        "moves",
        "if not there.start_offset <= to <= there.end_offset:",
        "if False:",
        f"{REWIND}moves_to_impossible_targets_are_refused",
    ),
    plugin(
        "repair",
        "rewind: the topic was recreated",
        "moves",
        "if ids.get(topic, described.topic_id) != described.topic_id:",
        "if False:",
        f"{REWIND}moves_to_impossible_targets_are_refused",
    ),
    plugin(
        "repair",
        "rewind: a move forward skips records without --accept-loss",
        "moves",
        "if forward and not accept_loss:",
        "if False:",
        f"{REWIND}a_move_forward_needs_accept_loss",
    ),
    plugin(
        "repair",
        "rewind: the feed has committed since the rewind was planned",
        "rewind",
        "if (now and now.snapshot_id) != (before and before.snapshot_id):",
        "if False:",
        f"{OFFSETS}a_rewind_is_refused_if_the_feed_has_committed_since_the_plan",
    ),
    python(
        "run: the topic is recreated while the feed runs",
        "records/sources",
        "if self._ids.setdefault(name, topic_id) != topic_id:",
        "if False:",
        f"{TRAPS}a_topic_that_is_recreated_during_a_run_stops_the_feed",
    ),
)

VERIFYING = (
    python(
        "verify: commits have a gap or an overlap",
        "operations/verify/audit",
        "*_continuity(evidence.commits),",
        "",
        f"{VERIFY}a_missing_commit_leaves_a_gap_in_all_its_ranges",
    ),
    python(
        "verify: the topic was recreated, or has lost records that the feed has not read",
        "operations/verify/audit",
        "*_topics(evidence),",
        "",
        f"{VERIFY}verify_finds_a_recreated_topic_in_the_ledger_and_on_the_broker",
    ),
    python(
        "verify: a replaced driver has committed",
        "operations/verify/audit",
        "*_fences(evidence.commits, evidence.fence),",
        "",
        f"{VERIFY}verify_finds_the_commit_of_a_replaced_driver_by_its_fence",
    ),
    python(
        "verify: a backfill has landed records of the feed again",
        "operations/verify/audit",
        "*_backfills(evidence),",
        "",
        "tests/unit/operations/verify/test_audit_backfills.py::"
        "test_verify_finds_a_backfill_of_records_that_the_feed_had_already_landed",
    ),
    python(
        "verify: records are missing",
        "operations/verify/audit",
        "*_records(evidence),",
        "",
        f"{VERIFY}offsets_without_a_record_must_be_confirmed_by_the_broker",
    ),
    python(
        "verify: the number of rows differs from the counts of the commits",
        "operations/verify/audit",
        "*_rows(evidence),",
        "",
        f"{VERIFY}verify_compares_the_number_of_rows_with_the_counts_unless_there_is_a_transform",
    ),
    python(
        "verify: the position in the table's properties differs from the newest commit",
        "operations/verify/audit",
        "*_recorded(evidence),",
        "",
        f"{VERIFY}a_position_in_the_table_properties_that_differs_from_the_newest_commit_is_a_fault",
    ),
    python(
        "verify: dead letters are missing",
        "operations/verify/audit",
        "*letter_findings(evidence),",
        "",
        f"{VERIFY}unwritten_dead_letters_are_a_fault_except_in_the_newest_batch",
    ),
    python(
        "verify: the offsets in the rows differ from the ranges of the commits",
        "operations/verify/audit",
        "*row_findings(evidence),",
        "",
        f"{VERIFY}verify_compares_the_offsets_in_the_rows_with_the_ledger",
    ),
)
