package io.lakefeed.upsert;

import org.apache.iceberg.SnapshotUpdate;

/** Removes the rows that a batch replaces from the table's files; the same commit adds the batch's own files. */
interface Removal {
    /**
     * Writes files, and returns a commit that fails if another writer has committed since the index's snapshot.
     *
     * @throws NotIndexed if the files show that the index is wrong
     */
    SnapshotUpdate<?> prepare();

    /** Deletes the files that {@link #prepare} has written, after its commit was refused. */
    void discard();

    /**
     * Updates the index after the commit, when the index already has the batch's new rows.
     *
     * @return false if the index turns out to be wrong, and must be emptied
     */
    boolean apply();
}
