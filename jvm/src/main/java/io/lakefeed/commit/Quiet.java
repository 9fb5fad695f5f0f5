package io.lakefeed.commit;

import java.util.List;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.exceptions.ValidationException;

/**
 * A writer's claim to the table's files: a MERGE that lost against a rewrite is run again, and would lose again against the
 * next one. The property {@value #PROPERTY} holds until when, in milliseconds since 1970, no rewrite is committed.
 * The writer's commit ends it.
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
            throw new ValidationException("A writer has asked for quiet until %s: files are not rewritten now", until);
        }
    }

    /** Whether this commit ends it: a feed has written. */
    static boolean isEndedBy(TableMetadata base, List<Snapshot> added) {
        return base.properties().containsKey(PROPERTY)
                && added.stream().anyMatch(each -> each.summary().containsKey(Ledger.FEED));
    }
}
