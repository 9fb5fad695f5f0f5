package io.lakefeed.upsert;

import org.apache.iceberg.SnapshotUpdate;

/** Removes the rows that a batch replaces from the table's files; the same commit adds the batch's own files. */
interface Removal {
    /**
     * Writes files, and returns a commit that fails if another writer has committed since the index was up to date.
     *
     * @throws NotIndexed if the files show that the index is wrong
     */
    SnapshotUpdate<?> prepare();

    /** Deletes the files that {@link #prepare} has written, after the commit was refused. */
    void discard();

    /**
     * Updates the index, after the commit and after the new rows of the batch are in the index.
     *
     * @return false if the index turns out to be wrong; then its content is dropped
     */
    boolean apply();
}
