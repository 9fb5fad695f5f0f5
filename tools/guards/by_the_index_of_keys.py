"""Guards of an upsert that uses the index of keys."""

from tools.guards.guard import java

INDEX = "tests/spark/test_key_index.py::test_"
WRONG = f"{INDEX}a_wrong_index_entry_is_noticed_in_the_commit_and_the_table_stays_correct"
UPSERTS = "tests/spark/test_upserts.py::test_"

BY_THE_INDEX_OF_KEYS = (
    java(
        "key index: the index describes an older snapshot",
        "upsert/KeyIndex",
        "boolean current = ready && same && describes(head);",
        "boolean current = ready && same;",
        f"{INDEX}the_table_equals_the_model_after_compaction_deletes_and_rows_of_other_writers",
    ),
    java(
        "key index: the index follows commits that change rows",
        "upsert/KeyIndex",
        "if (each == null || seen == MOST_SNAPSHOTS || !keepsRows(each)) {",
        "if (each == null || seen == MOST_SNAPSHOTS) {",
        f"{INDEX}the_table_equals_the_model_after_compaction_deletes_and_rows_of_other_writers",
    ),
    java(
        "key index: a batch lands over conflicting rows of another writer",
        "upsert/DeletedPositions",
        ".validateNoConflictingDataFiles()",
        "",
        f"{UPSERTS}two_simultaneous_upserts_of_the_same_keys_leave_one_row_per_key",
    ),
    java(
        "key index: rewritten files land over conflicting rows of another writer",
        "upsert/RewrittenFiles",
        ".validateNoConflictingData()",
        "",
        f"{UPSERTS}two_simultaneous_upserts_of_the_same_keys_leave_one_row_per_key",
    ),
    java(
        "key index: a batch replaces a row of another key",
        "upsert/IndexedBatch",
        "if (!isSampleRight) {",
        "if (false) {",
        WRONG,
    ),
    java(
        "key index: replaced rows stay in the rewritten files",
        "upsert/FileRewriter",
        "if (gone.contains(position)) {",
        "if (false) {",
        f"{INDEX}the_table_equals_the_model_after_compaction_deletes_and_rows_of_other_writers",
    ),
    java(
        "key index: keys are not moved to the rewritten files",
        "upsert/RewrittenFiles",
        "if (!index.places.move(batch.replaced, stretches)) {",
        "if (false) {",
        f"{INDEX}the_table_equals_the_model_after_compaction_deletes_and_rows_of_other_writers",
    ),
    java(
        "key index: the order of the changes is not compared with the row",
        "upsert/IndexedFile",
        "&& Arrays.equals(new KeyOrder(types, index.orderBy).of(row), order);",
        ";",
        f"{INDEX}a_wrong_time_in_the_index_is_noticed_in_the_commit",
    ),
    java(
        "key index: a row without times is newer than one with times",
        "upsert/KeyOrder",
        "private static final long NULL = Long.MIN_VALUE;",
        "private static final long NULL = Long.MAX_VALUE - 1;",
        f"{INDEX}the_table_equals_the_model_after_compaction_deletes_and_rows_of_other_writers",
    ),
    *(
        java(f"key index: {name}", f"upsert/{file}", condition, "if (false) {", test)
        for name, file, condition, test in (
            (
                "the index has fewer or more keys than the table has rows",
                "KeyIndex",
                "if (current && rows - size() != surplus) {",
                WRONG,
            ),
            (
                "a row is deleted twice",
                "DeletedPositions",
                "if (written.stream().anyMatch(IndexedFile.Deletes::isDoubled)) {",
                WRONG,
            ),
            (
                "the table has two rows of a key",
                "KeyPlaces",
                "if (found && !known) {",
                INDEX + "a_table_with_two_rows_of_a_key_is_not_indexed",
            ),
            (
                "a batch that reads records again is not merged",
                "KeyPlaces",
                "if (start.isNumber() && start.asLong() <= greatest.get(at)) {",
                UPSERTS + "a_repeated_batch_leaves_the_table_unchanged_and_the_ledger_recognizes_it",
            ),
            (
                "rows that another writer has landed meanwhile land again",
                "IndexedBatch",
                "if (moved != null || readsAgain()) {",
                UPSERTS + "two_simultaneous_upserts_of_the_same_keys_leave_one_row_per_key",
            ),
            (
                "changes of a key come from two partitions",
                "IndexedBatch",
                "if (!isOrdered() && places.table.partition() >= 0 && places.table.partition() != source) {",
                UPSERTS + "a_key_in_two_partitions_stops_the_feed_unless_a_column_orders_its_changes",
            ),
            (
                "an older change of a key wins",
                "IndexedBatch",
                "if (isNewer(entries, at, others, otherAt)) {",
                INDEX + "a_key_that_is_repeated_after_its_row_was_written_has_one_row",
            ),
            (
                "a change that is older by order_by replaces a row",
                "IndexedBatch",
                "if (!isNewerThanRow(entries, at)) {",
                INDEX + "the_table_equals_the_model_after_compaction_deletes_and_rows_of_other_writers",
            ),
            (
                "the partition does not decide between equal times in a batch",
                "IndexedBatch",
                "if (compared == 0 && width > 0) {",
                INDEX + "of_two_changes_with_equal_times_the_change_of_the_later_partition_is_newer",
            ),
            (
                "the partition does not decide between a change and a row with equal times",
                "IndexedBatch",
                "if (compared == 0 && isOrdered() && stored != KeyEntries.NO_PARTITION) {",
                INDEX + "of_two_changes_with_equal_times_the_change_of_the_later_partition_is_newer",
            ),
            (
                "the value -2^63 of order_by counts as null",
                "KeyOrder",
                "if (numbers[at] == NULL && !isNull) {",
                INDEX + "the_smallest_number_in_order_by_is_older_than_the_next_number",
            ),
            (
                "a change that lacks a value is not merged",
                "KeyIndex",
                "if (batch.lacksValues()) {",
                f"{INDEX}a_batch_is_merged_only_if_a_change_lacks_values",
            ),
        )
    ),
)
