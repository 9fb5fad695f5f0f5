package io.lakefeed.delta;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.FileAction;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.SetTransaction;
import org.apache.spark.sql.streaming.OutputMode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Files of a batch that are in the table's folder, and in no version of the table yet. */
public final class Staged {
    private static final Logger LOG = LoggerFactory.getLogger(Staged.class);

    /** The attempts to land before any other writer; each one costs a listing of the log's newest files. */
    private static final int ATTEMPTS = 100;

    private final DeltaLog log;
    private final LedgerReader ledger;
    private final Metadata metadata;
    private final List<FileAction> files;

    /** Whether the files may be in a version of the table. */
    private boolean sent;

    Staged(DeltaLog log, LedgerReader ledger, Metadata metadata, List<FileAction> files) {
        this.log = log;
        this.ledger = ledger;
        this.metadata = metadata;
        this.files = files;
    }

    /** Returns the number of rows in the files. */
    public long rows() {
        long rows = 0;
        for (FileAction each : files) {
            Option<Object> count = each.numLogicalRecords();
            if (count.isEmpty()) {
                return -1;
            }
            rows += ((Number) count.get()).longValue();
        }
        return rows;
    }

    /**
     * Commits the files and an entry of the feed's ledger as one version of the table.
     *
     * <p>The transaction is based on the newest version, whose entry must have the number before. If another commit
     * comes first, the next attempt looks at it: so of two drivers with the same number one is refused.
     *
     * @param userMetadata a text for people who read the table's history
     * @throws IllegalStateException if the commit does not continue the newest entry
     */
    public void commit(String feed, int number, String entry, String userMetadata) {
        for (int attempt = 1; ; attempt++) {
            try {
                commit(new NextVersion(log), feed, number, entry, userMetadata);
                return;
            } catch (NextVersion.Overtaken overtaken) {
                if (attempt == ATTEMPTS) {
                    throw overtaken;
                }
            }
        }
    }

    private void commit(NextVersion transaction, String feed, int number, String entry, String userMetadata) {
        Ledger newest = ledger.at(transaction.snapshot());
        if (newest.number != number - 1) {
            discard();
            throw new IllegalStateException("lakefeed: the table has entry " + newest.number + " of feed " + feed
                    + ", so entry " + number + " does not follow");
        }
        String fault = ledger.fault();
        if (fault != null) {
            discard();
            throw new IllegalStateException(fault);
        }
        if (metadata != null && !metadata.equals(transaction.metadata())) {
            discard();
            throw new IllegalStateException("lakefeed: the table's columns or properties were changed while the batch"
                    + " was written; the next attempt uses the new ones");
        }
        List<Action> actions = new ArrayList<>(files);
        actions.add(Ledger.next(feed, number, entry, transaction.readVersion()));
        actions.add(new SetTransaction(Ledger.domain(feed), number, Option.apply(System.currentTimeMillis())));
        var operation = new DeltaOperations.StreamingUpdate(
                OutputMode.Append(), Ledger.domain(feed), number, Option.apply(userMetadata));
        sent = true;
        transaction.commit(CollectionConverters.asScala(actions).toSeq(), operation);
        ledger.landed(new Ledger(number, transaction.readVersion() + 1, entry));
    }

    /** Deletes the files, unless an attempt has sent their commit; VACUUM deletes those that no version has. */
    public void discard() {
        if (sent) {
            return;
        }
        for (FileAction each : files) {
            if (each instanceof AddFile file) {
                Path path = new Path(log.dataPath(), new Path(java.net.URI.create(file.path())));
                try {
                    FileSystem store = path.getFileSystem(log.newDeltaHadoopConf());
                    store.delete(path, false);
                } catch (IOException failed) {
                    LOG.warn("{} is in no version of the table and could not be deleted; VACUUM deletes it", path);
                }
            }
        }
    }
}
