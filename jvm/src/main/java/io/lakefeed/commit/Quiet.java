package io.lakefeed.commit;

import java.util.List;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.exceptions.ValidationException;

/**
 * Pauses rewrites of the table's files for a writer: a MERGE that lost against a rewrite runs again, and would lose
 * against the next one too. The property {@value #PROPERTY} is the time, in milliseconds since 1970, until which no
 * rewrite is committed. The writer's commit ends the pause.
 */
final class Quiet {
    static final String PROPERTY = "lakefeed.upkeep.quiet";

    private Quiet() {}

    /** @throws ValidationException if one of these is a rewrite, and a writer has asked for none */
    static void check(TableMetadata base, List<Snapshot> added) {
        String until = base.properties().get(PROPERTY);
        if (until != null
                && Long.parseLong(until) > System.currentTimeMillis()
                && added.stream().anyMatch(each -> DataOperations.REPLACE.equals(each.operation()))) {
            throw new ValidationException("A writer has paused rewrites of files until %s", until);
        }
    }

    /** Returns whether this commit of a feed ends the pause. */
    static boolean isEndedBy(TableMetadata base, List<Snapshot> added) {
        return base.properties().containsKey(PROPERTY)
                && added.stream().anyMatch(each -> each.summary().containsKey(Ledger.FEED));
    }
}
