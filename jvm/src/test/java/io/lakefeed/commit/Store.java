package io.lakefeed.commit;

import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

/** A catalog of one table in memory, which can fail before or after it stores a commit. */
final class Store implements TableOperations {
    TableMetadata current = Tables.empty();
    RuntimeException before;
    RuntimeException after;
    RuntimeException conflict = new CommitFailedException("the table has changed");
    int commits;
    /** The action of another writer just before the next commit; it runs only once. */
    Runnable meanwhile;

    @Override
    public void commit(TableMetadata base, TableMetadata changed) {
        if (before != null) {
            throw before;
        }
        if (meanwhile != null) {
            Runnable once = meanwhile;
            meanwhile = null;
            once.run();
        }
        if (base != current) {
            throw conflict;
        }
        current = changed;
        commits++;
        if (after != null) {
            throw after;
        }
    }

    @Override
    public TableMetadata current() {
        return current;
    }

    @Override
    public TableMetadata refresh() {
        return current;
    }

    @Override
    public FileIO io() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String metadataFileLocation(String fileName) {
        return "s3://lake/table/metadata/" + fileName;
    }

    @Override
    public LocationProvider locationProvider() {
        throw new UnsupportedOperationException();
    }
}
