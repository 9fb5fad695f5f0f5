package io.lakefeed.delta;

import org.apache.spark.sql.delta.CurrentTransactionInfo;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.IsolationLevel;
import org.apache.spark.sql.delta.OptimisticTransaction;
import scala.Option;
import scala.Tuple2;

/**
 * A transaction that lands right after the version that it is based on, or not at all.
 *
 * <p>Delta itself puts appends on top of commits of others, after it has looked for conflicts by its own rules. By these
 * rules a feed's rows may follow a commit that has removed the rows before them.
 */
final class NextVersion extends OptimisticTransaction {
    /** Begins a transaction that is based on the newest version. */
    NextVersion(DeltaLog log) {
        super(log, Option.empty(), log.update(false, Option.empty(), Option.empty()));
    }

    @Override
    public Tuple2<Object, CurrentTransactionInfo> checkForConflicts(
            long version, CurrentTransactionInfo info, int attempt, IsolationLevel isolation) {
        throw new Overtaken(version);
    }

    /** Says that another commit has landed first. */
    static final class Overtaken extends RuntimeException {
        private static final long serialVersionUID = 1L;

        Overtaken(long version) {
            super("lakefeed: other commits came first, again and again; the last one is version " + version);
        }
    }
}
