package io.lakefeed.dashboard;

import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Creates the session for the queries of a dashboard's panels, in the application of the feed.
 *
 * <p>A panel's settings do not affect batches, and a batch's settings do not affect panels.
 */
public final class PanelSession {
    /**
     * With a single task, a panel's query takes at most one core from a batch. With Spark's variable substitution off,
     * the query cannot read settings, which may be secrets.
     */
    private static final Map<String, String> SETTINGS = Map.of(
            "spark.sql.shuffle.partitions", "1",
            "spark.sql.leafNodeDefaultParallelism", "1",
            "spark.sql.adaptive.enabled", "true",
            "spark.sql.variable.substitute", "false");

    private PanelSession() {}

    /** Returns a copy of a session, with its catalogs and secrets but its own settings. */
    public static SparkSession of(SparkSession session) {
        SparkSession copy = ((org.apache.spark.sql.classic.SparkSession) session).cloneSession();
        SETTINGS.forEach((key, value) -> copy.conf().set(key, value));
        return copy;
    }

    /** Copies the current temporary views of {@code session} to {@code copy}. */
    public static void takeViews(SparkSession session, SparkSession copy) {
        SessionCatalog from = catalog(session);
        SessionCatalog to = catalog(copy);
        for (String name : CollectionConverters.asJava(from.getTempViewNames())) {
            from.getRawTempView(name).foreach(view -> {
                to.createTempView(name, view, true);
                return null;
            });
        }
    }

    private static SessionCatalog catalog(SparkSession session) {
        return ((org.apache.spark.sql.classic.SparkSession) session)
                .sessionState()
                .catalog();
    }
}
