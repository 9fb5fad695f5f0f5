package io.lakefeed.commit;

import java.util.List;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.exceptions.ValidationException;

/**
 * Pauses rewrites of the table's files, such as compactions. A writer whose MERGE has conflicted with a rewrite
 * requests the pause, because the repeated MERGE would conflict with the next rewrite, too. No rewrite is committed
 * until the time in the property {@value #PROPERTY}, in milliseconds since 1970. The writer's commit ends the pause.
 */
final class Quiet {
    static final String PROPERTY = "lakefeed.upkeep.quiet";

    private Quiet() {}

    /** @throws ValidationException if rewrites are paused and one of the snapshots is a rewrite */
    static void check(TableMetadata base, List<Snapshot> added) {
        String until = base.properties().get(PROPERTY);
        if (until != null
                && Long.parseLong(until) > System.currentTimeMillis()
                && added.stream().anyMatch(each -> DataOperations.REPLACE.equals(each.operation()))) {
            throw new ValidationException("A writer has paused rewrites of files until %s", until);
        }
    }

    static boolean isEndedBy(TableMetadata base, List<Snapshot> added) {
        return base.properties().containsKey(PROPERTY)
                && added.stream().anyMatch(each -> each.summary().containsKey(Ledger.FEED));
    }
}
