package io.lakefeed.commit;

import io.lakefeed.sink.Uploads;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.ReplacePartitions;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.SerializableTable;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.metrics.MetricsReporter;
import org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors;

/** A table that adds the counts of a batch to the batch's commit, or refuses the commit by {@link Outcomes#check}. */
final class FeedTable extends BaseTable {
    private static final long serialVersionUID = 1L;

    /**
     * Runs the steps of an append in the calling thread. With a pool of threads, Iceberg checks only every 10 ms
     * whether each of three steps is done. An append gains nothing from a pool, because it rewrites only the manifests
     * that it merges.
     */
    private static final ExecutorService CALLER = MoreExecutors.newDirectExecutorService();

    private FeedTable(TableOperations operations, String name, MetricsReporter reporter) {
        super(operations, name, reporter);
    }

    static FeedTable of(BaseTable table) {
        CheckedOperations operations = new CheckedOperations(table.operations(), table.name());
        RecentTables.put(table.name(), operations.current());
        return new FeedTable(operations, table.name(), table.reporter());
    }

    /**
     * Sets fences, which are table properties. If the catalog does not detect concurrent changes of properties, the
     * same commit adds an empty snapshot, so that a concurrent commit gets a conflict: it was checked with the old
     * fence.
     */
    void takeFences(Map<String, String> fences) {
        boolean guarded = ((CheckedOperations) operations()).guardsProperties();
        Transaction transaction = newTransaction();
        UpdateProperties update = transaction.updateProperties();
        fences.forEach(update::set);
        update.commit();
        if (!guarded) {
            TableMetadata table = operations().current();
            fences.forEach((key, fence) -> {
                AppendFiles nothing = transaction.newFastAppend();
                // Commit to the feed's branch, because a snapshot causes conflicts only with commits to its own branch.
                nothing.toBranch(Ledger.branch(table, Ledger.fenced(key)));
                nothing.set(Ledger.TAKEN + key.substring(Ledger.FENCES.length()), fence).commit();
            });
        }
        transaction.commitTransaction();
    }

    /** Returns the copy for executors. BaseTable has the same method, but it is private to its package. */
    Object writeReplace() {
        return SerializableTable.copyOf(this);
    }

    @Override
    public AppendFiles newAppend() {
        return counted(AppendFiles.class, super.newAppend().scanManifestsWith(CALLER), operations());
    }

    @Override
    public AppendFiles newFastAppend() {
        return counted(AppendFiles.class, super.newFastAppend().scanManifestsWith(CALLER), operations());
    }

    @Override
    public OverwriteFiles newOverwrite() {
        return counted(OverwriteFiles.class, super.newOverwrite(), operations());
    }

    @Override
    public ReplacePartitions newReplacePartitions() {
        return counted(ReplacePartitions.class, super.newReplacePartitions(), operations());
    }

    @Override
    public RowDelta newRowDelta() {
        return counted(RowDelta.class, super.newRowDelta(), operations());
    }

    /**
     * Wraps an update: its commit, which follows all tasks, checks the batch's counts and adds them to the snapshot's
     * summary. Spark cannot add the counts, because it fixes the summary's properties when the write begins.
     */
    private static <T extends SnapshotUpdate<?>> T counted(Class<T> type, T update, TableOperations operations) {
        String[] commitId = new String[1];
        Object proxy = Proxy.newProxyInstance(
                FeedTable.class.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) -> {
                    if (method.getName().equals("set") && Ledger.COMMIT_ID.equals(arguments[0])) {
                        commitId[0] = (String) arguments[1];
                    }
                    boolean commits = method.getName().equals("commit");
                    if (commits) {
                        Outcomes outcomes = Outcomes.of(commitId[0]);
                        if (outcomes != null) {
                            outcomes.check();
                            update.set(Ledger.COUNTS, outcomes.toJson());
                            outcomes.entries().forEach(update::set);
                        }
                    }
                    Uploads uploads = commits ? Uploads.beside(operations.metadataFileLocation("")) : null;
                    try {
                        Object result = method.invoke(update, arguments);
                        return result == update ? self : result;
                    } catch (InvocationTargetException thrown) {
                        throw thrown.getCause();
                    } finally {
                        if (uploads != null) {
                            uploads.close();
                        }
                    }
                });
        return type.cast(proxy);
    }
}
