package io.lakefeed.commit;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Map;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.ReplacePartitions;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.SerializableTable;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.metrics.MetricsReporter;

/** A table whose commits of a feed say what became of the batch's records, and are refused if the batch must not land. */
final class FeedTable extends BaseTable {
    private static final long serialVersionUID = 1L;

    private FeedTable(TableOperations operations, String name, MetricsReporter reporter) {
        super(operations, name, reporter);
    }

    static FeedTable of(BaseTable table) {
        return new FeedTable(new CheckedOperations(table.operations()), table.name(), table.reporter());
    }

    /**
     * Sets fences, which are properties. Not every catalog guards those: there an empty snapshot comes with them, in the
     * same commit, so that nobody's commit that was checked before it can land after it.
     */
    void takeFences(Map<String, String> fences) {
        boolean guarded = ((CheckedOperations) operations()).guardsProperties();
        Transaction transaction = newTransaction();
        UpdateProperties update = transaction.updateProperties();
        fences.forEach(update::set);
        update.commit();
        if (!guarded) {
            AppendFiles nothing = transaction.newFastAppend();
            fences.forEach((key, fence) -> nothing.set(Ledger.TAKEN + key.substring(Ledger.FENCES.length()), fence));
            nothing.commit();
        }
        transaction.commitTransaction();
    }

    /** What travels to the executors: BaseTable's own way is private to its package. */
    Object writeReplace() {
        return SerializableTable.copyOf(this);
    }

    @Override
    public AppendFiles newAppend() {
        return counted(AppendFiles.class, super.newAppend());
    }

    @Override
    public AppendFiles newFastAppend() {
        return counted(AppendFiles.class, super.newFastAppend());
    }

    @Override
    public OverwriteFiles newOverwrite() {
        return counted(OverwriteFiles.class, super.newOverwrite());
    }

    @Override
    public ReplacePartitions newReplacePartitions() {
        return counted(ReplacePartitions.class, super.newReplacePartitions());
    }

    @Override
    public RowDelta newRowDelta() {
        return counted(RowDelta.class, super.newRowDelta());
    }

    /**
     * The same update; before its commit, which is when all tasks are done, the batch's counts are checked and put into
     * the summary. The summary's properties were fixed when the write began and could not hold them.
     */
    private static <T extends SnapshotUpdate<?>> T counted(Class<T> type, T update) {
        String[] commitId = new String[1];
        Object proxy = Proxy.newProxyInstance(
                FeedTable.class.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) -> {
                    if (method.getName().equals("set") && Ledger.COMMIT_ID.equals(arguments[0])) {
                        commitId[0] = (String) arguments[1];
                    }
                    if (method.getName().equals("commit")) {
                        Outcomes outcomes = Outcomes.of(commitId[0]);
                        if (outcomes != null) {
                            outcomes.check();
                            update.set(Ledger.COUNTS, outcomes.toJson());
                        }
                    }
                    try {
                        Object result = method.invoke(update, arguments);
                        return result == update ? self : result;
                    } catch (InvocationTargetException thrown) {
                        throw thrown.getCause();
                    }
                });
        return type.cast(proxy);
    }
}
