"""Guards that act before the commit of a batch, and guards of the batch's dead letters after the commit."""

from __future__ import annotations

from tools.guards.guard import java, plugin, python

CHECK = "tests/spark/test_commit_check.py::test_"
OUTCOMES = "tests/spark/test_outcomes.py::test_"
START = "tests/unit/feed/test_recovery.py::test_"
OFFSETS = "packages/repair/tests/integration/test_offsets.py::test_"
KINESIS = "packages/kinesis/tests/integration/test_kinesis.py::test_"
FAILING = "tests/integration/test_failing_records.py::test_"
ISOLATES = "tests/unit/feed/test_failing_records.py::test_"
LETTERS = "tests/integration/test_dead_letters.py::test_"
STATEMENTS = "tests/spark/test_statements.py::test_"
MANAGER = "tests/contract/test_checkpoint_manager.py::test_"

BEFORE_THE_COMMIT = (
    java(
        "outcomes: an Iceberg batch lands unchecked",
        "commit/FeedTable",
        "outcomes.check();",
        "",
        f"{OUTCOMES}a_refused_batch_leaves_the_table_unchanged",
    ),
    java(
        "outcomes: a Parquet batch lands unchecked",
        "commit/CheckedFileCommit",
        "outcomes.check();",
        "",
        f"{OUTCOMES}a_refused_batch_leaves_the_sinks_log_unchanged",
    ),
    java(
        "outcomes: a batch lands with schemas that its rows do not cover",
        "commit/Outcomes",
        "if (coveredSchemas != null &&",
        "if (false &&",
        f"{OUTCOMES}a_refused_batch_leaves_the_table_unchanged",
    ),
    java(
        "outcomes: a batch lands with a record that must stop the feed",
        "commit/Outcomes",
        "if (stop() != null) {",
        "if (false) {",
        f"{OUTCOMES}a_refused_batch_leaves_the_table_unchanged",
    ),
    java(
        "outcomes: a batch lands with more dead letters than the budget",
        "commit/Outcomes",
        "if (!bounds.stream().allMatch(bound -> bound.allows(dead, records))) {",
        "if (false) {",
        f"{OUTCOMES}a_refused_batch_leaves_the_table_unchanged",
    ),
    java(
        "outcomes: a range that is read twice counts twice",
        "commit/Outcomes",
        "ranges.put(range.key(), range);",
        "ranges.put(new RangeOutcome.Key(range.topic, range.partition, System.nanoTime()), range);",
        f"{OUTCOMES}a_record_that_a_plan_reads_twice_is_counted_once",
    ),
    python(
        "ledger: a batch that has landed is written again",
        "ledger/continuity",
        "if last.ranges == commit.ranges:",
        "if False:",
        f"{CHECK}a_batch_is_skipped_only_if_the_newest_commit_has_the_same_ranges",
    ),
    python(
        "ledger: a batch counts as landed because of its number",
        "ledger/continuity",
        "if last.ranges == commit.ranges:",
        "if commit.batch_id == 0:",
        f"{CHECK}a_batch_is_skipped_only_if_the_newest_commit_has_the_same_ranges",
    ),
    python(
        "ledger: a checkpoint with batches begins with an empty table",
        "ledger/continuity",
        "if commit.batch_id == 0:",
        "if True:",
        f"{CHECK}a_batch_is_skipped_only_if_the_newest_commit_has_the_same_ranges",
    ),
    python(
        "ledger: a batch that does not continue the last batch is written",
        "ledger/continuity",
        "if not (faults := violations(last.ranges, commit)):",
        "if True:",
        f"{CHECK}a_batch_is_skipped_only_if_the_newest_commit_has_the_same_ranges",
    ),
    python(
        "fence: commits do not carry the fence",
        "ledger/snapshot_summary",
        "self.move.to_json(self.ranges)\n"
        "        return written if self.fence is None else {**written, FENCE: self.fence}",
        "self.move.to_json(self.ranges)\n        return written",
        f"{CHECK}only_the_driver_that_took_the_fence_last_can_commit",
    ),
    python(
        "fence: a replaced driver reports its successor's batch as landed",
        "feed/batch_writer",
        "if self.fence is not None and (taken := self.sink.fence_taken()) != self.fence:",
        "if False:",
        "tests/unit/feed/test_batch_writer.py::test_a_replaced_driver_does_not_report_a_batch_of_the_new_driver",
    ),
    python(
        "fence: a driver begins without taking the fence",
        "feed/batch_writer",
        "            fence = self.sink.take_fence()\n",
        "            pass\n",
        f"{LETTERS}a_broken_record_becomes_a_dead_letter_and_the_other_records_become_rows",
    ),
    python(
        "source: records of aborted transactions land",
        "config/kafka_client",
        '"kafka.isolation.level": "read_committed",',
        "",
        "tests/integration/test_verify.py::test_verify_distinguishes_offsets_without_a_record_from_lost_records",
    ),
    python(
        "checkpoint: a feed uses the checkpoint of another feed",
        "ledger/checkpoint",
        "    if changes:\n",
        "    if False:\n",
        f"{START}a_checkpoint_of_another_pipeline_is_refused_with_the_difference",
    ),
    python(
        "checkpoint: a feed uses a checkpoint that lakefeed has not made",
        "ledger/checkpoint",
        "if METADATA in names:",
        "if False:",
        f"{START}read_note_reads_notes_of_older_and_newer_versions",
    ),
    java(
        "checkpoint: two drivers write the same entry",
        "checkpoint/EntryOutput",
        "writeId, exclusive && conditional)",
        "writeId, false)",
        f"{MANAGER}the_second_writer_of_an_entry_gets_hadoops_file_already_exists_exception",
    ),
    java(
        "checkpoint: a driver's own entry counts as another driver's after a lost answer",
        "checkpoint/EntryOutput",
        "if (writeId.equals(owner)) {",
        "if (false) {",
        "tests/faults/test_checkpoint_s3_faults.py",
    ),
)

DEAD_LETTERS = (
    python(
        "isolated records: a batch fails although its failing records are isolated",
        "feed/batch_writer",
        "self.rows.isolated = {**self.rows.isolated, **failing}",
        "raise RuntimeError",
        f"{FAILING}records_that_make_a_batch_fail_become_dead_letters",
    ),
    python(
        "isolated records: a crash loses the dead letters",
        "feed/batch_writer",
        "                self.rows.isolated = self._isolate(commit, spans)\n",
        "                pass\n",
        f"{FAILING}records_that_make_a_batch_fail_become_dead_letters",
    ),
    python(
        "isolated records: the failure of a server makes records dead letters",
        "feed/failing_records",
        "return isolated if some_succeed or (isolated and works()) else {}",
        "return isolated",
        f"{ISOLATES}no_record_is_isolated_if_all_records_fail_or_only_one_attempt_fails",
    ),
    python(
        "dead letters: a crash after an Iceberg commit loses letters",
        "feed/batch_writer",
        "            self._settle(newest, lost)\n",
        "            pass\n",
        f"{LETTERS}dead_letters_lost_to_a_crash_are_written_at_the_next_start",
    ),
    python(
        "dead letters: a crash after a Parquet commit loses letters",
        "feed/batch_writer",
        "                self._complete(batch, commit)\n",
        "                pass\n",
        f"{LETTERS}parquet_letters_lost_to_a_crash_are_written_when_the_batch_is_repeated",
    ),
    plugin(
        "repair",
        "dead letters: a crash in a backfill loses letters",
        "backfill",
        "settled = self._settle(writer)",
        "settled = 0",
        "packages/repair/tests/integration/test_backfill.py::test_an_interrupted_backfill_resumes_without_lost_or_repeated_dead_letters",
    ),
    python(
        "dead letters: letters that are in the table are written again",
        "sinks/dead_letters/table",
        "if all(ends.get(each.key, 0) >= each.end for each in ranges):",
        "if False:",
        f"{LETTERS}dead_letters_lost_to_a_crash_are_written_at_the_next_start",
    ),
    python(
        "dead letters: letters ahead of the table are dropped although the feed was not moved",
        "sinks/dead_letters/table",
        "if step is not None and not moved:",
        "if False:",
        f"{OFFSETS}dead_letters_ahead_of_the_table_are_dropped_only_on_request",
    ),
    plugin(
        "repair",
        "replay: rows of an interrupted replay land again",
        "replay",
        "if ledger.has_replay(replay_id):",
        "if False:",
        f"{LETTERS}an_interrupted_replay_is_completed_by_the_next_replay",
    ),
    java(
        "kinesis: a repeated batch ends at another record",
        "kinesis/ShardRange",
        "&& !record.sequenceNumber().equals(range.last())) {",
        "&& false) {",
        f"{KINESIS}the_feed_stops_if_records_of_a_planned_batch_no_longer_exist",
    ),
    java(
        "kinesis: retention has removed unread records",
        "kinesis/Retention",
        "if (there || mark.finished() || !hasReached(mark)) {",
        "if (true) {",
        f"{KINESIS}the_feed_stops_at_expired_records_until_the_loss_is_accepted",
    ),
    java(
        "kinesis: a shard is read before its parent shard",
        "kinesis/KinesisStream",
        "known.containsKey(parent) ? finished.contains(parent) : !there.contains(parent));",
        "true);",
        f"{KINESIS}a_split_shard_is_read_before_its_children",
    ),
    java(
        "joins: a plan reads a stream twice",
        "query/StreamingPlan",
        "return sources.size() <= 1 && apart ? filters : null;",
        "return filters;",
        "tests/integration/test_stream_joins.py::test_an_invalid_join_is_refused_before_the_start",
        "tests/integration/test_stateful.py::test_an_invalid_transform_with_state_is_refused_before_the_start",
    ),
    java(
        "texts: Spark replaces variables in SQL",
        "query/Statements",
        'settings.setConfString("spark.sql.variable.substitute", "false");',
        "",
        f"{STATEMENTS}texts_in_sql_reach_spark_unchanged",
    ),
    python(
        "texts: Spark replaces variables in the options of a function",
        "clients/spark/jvm",
        'spark.conf.set(f"spark.sql.catalog.{name}.encoded", encoded)',
        '[spark.conf.set(f"spark.sql.catalog.{name}.{each}", options[each]) for each in options]',
        f"{STATEMENTS}no_variable_is_replaced_in_a_decoders_schema",
    ),
)
