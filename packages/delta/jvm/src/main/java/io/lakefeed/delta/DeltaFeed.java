package io.lakefeed.delta;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.DomainMetadataTableFeature$;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.TypeWidening$;
import org.apache.spark.sql.delta.TypeWideningMode;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.FileAction;
import org.apache.spark.sql.delta.actions.Format;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.schema.SchemaMergingUtils$;
import org.apache.spark.sql.delta.sources.DeltaSQLConf$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The Delta table at a path, as one feed writes it. */
public final class DeltaFeed {
    private static final String FEATURE = "delta.feature." + DomainMetadataTableFeature$.MODULE$.name();

    private final SparkSession spark;
    private final DeltaLog log;
    private final LedgerReader ledger;

    /**
     * Opens the table, which may be missing.
     *
     * @param path the table's folder
     * @param feed the feed's name
     */
    public DeltaFeed(SparkSession spark, String path, String feed) {
        this.spark = spark;
        this.log = DeltaLog.forTable(spark, new Path(path));
        this.ledger = new LedgerReader(log, feed);
    }

    private Snapshot newest() {
        return log.update(false, Option.empty(), Option.empty());
    }

    /** Returns the newest entry of the feed's ledger; null if the table or the entry does not exist. */
    public String entry() {
        return ledger.at(newest()).entry;
    }

    /** Returns the class that writes the files of the table's log. */
    public String logStore() {
        return log.store() instanceof org.apache.spark.sql.delta.storage.DelegatingLogStore stores
                        && stores.getDelegate(log.logPath())
                                instanceof org.apache.spark.sql.delta.storage.LogStoreAdaptor adaptor
                ? adaptor.logStoreImpl().getClass().getName()
                : log.store().getClass().getName();
    }

    /** Returns the table's columns as JSON; null if the table does not exist. */
    public String columns() {
        Snapshot snapshot = newest();
        return snapshot.version() < 0 ? null : snapshot.schema().json();
    }

    /** Returns the columns that the table's files are partitioned by. */
    public List<String> partitions() {
        return CollectionConverters.asJava(log.unsafeVolatileSnapshot().metadata().partitionColumns());
    }

    /** Returns whether a table that exists cannot store the ledger yet. */
    public boolean lacksFeature() {
        Snapshot snapshot = log.unsafeVolatileSnapshot();
        return snapshot.version() >= 0
                && !snapshot.protocol().isFeatureSupported(DomainMetadataTableFeature$.MODULE$);
    }

    /**
     * Returns, as JSON, the columns that the table would have after it was adapted to these rows. Changes nothing.
     *
     * @param rows the rows' columns as JSON
     */
    public String merged(String rows) {
        return merged(newest(), (StructType) DataType.fromJson(rows)).json();
    }

    private StructType merged(Snapshot snapshot, StructType rows) {
        StructType nullable = rows.asNullable();
        if (snapshot.version() < 0) {
            return nullable;
        }
        TypeWideningMode mode = TypeWidening$.MODULE$.isEnabled(snapshot.protocol(), snapshot.metadata())
                ? new TypeWideningMode.TypeEvolution(
                        false, DeltaSQLConf$.MODULE$.AllowAutomaticWideningMode().SAME_FAMILY_TYPE())
                : SchemaMergingUtils$.MODULE$.mergeSchemas$default$5();
        return SchemaMergingUtils$.MODULE$.mergeSchemas(snapshot.schema(), nullable, false, false, mode, false);
    }

    /**
     * Creates the table, or adds what it lacks for these rows, in one commit; commits nothing if it lacks nothing.
     *
     * @param rows the rows' columns as JSON
     * @param partitions the columns that a new table's files are partitioned by
     * @param properties a new table's properties
     * @param comment a new table's comment, or null
     * @param evolves whether columns may be added
     * @return whether the table was changed
     */
    public boolean prepare(
            String rows, List<String> partitions, Map<String, String> properties, String comment, boolean evolves) {
        OptimisticTransaction transaction = log.startTransaction(Option.empty(), Option.empty());
        Snapshot snapshot = transaction.snapshot();
        boolean isNew = snapshot.version() < 0;
        Metadata before = snapshot.metadata();
        StructType columns = isNew || evolves
                ? merged(snapshot, (StructType) DataType.fromJson(rows))
                : snapshot.schema();
        boolean feature = isNew || !snapshot.protocol().isFeatureSupported(DomainMetadataTableFeature$.MODULE$);
        if (!feature && columns.equals(snapshot.schema())) {
            return false;
        }
        Map<String, String> configuration = new HashMap<>(CollectionConverters.asJava(before.configuration()));
        if (isNew) {
            configuration.putAll(properties);
        }
        if (feature) {
            configuration.put(FEATURE, "supported");
        }
        var stored = scala.collection.immutable.Map.from(CollectionConverters.asScala(configuration));
        Metadata after = new Metadata(
                before.id(),
                before.name(),
                isNew ? comment : before.description(),
                isNew ? new Format("parquet", before.format().options()) : before.format(),
                columns.json(),
                isNew ? CollectionConverters.asScala(partitions).toSeq() : before.partitionColumns(),
                stored,
                isNew ? Option.apply(System.currentTimeMillis()) : before.createdTime());
        transaction.updateMetadata(after, false);
        transaction.commit(
                scala.collection.immutable.List$.MODULE$.<Action>empty(),
                DeltaOperations.ManualUpdate$.MODULE$);
        return true;
    }

    /** Writes a batch's rows into files of the table's folder, which no version of the table has yet. */
    public Staged stage(Dataset<?> rows) {
        Snapshot snapshot = log.unsafeVolatileSnapshot();
        OptimisticTransaction transaction = log.startTransaction(Option.empty(), Option.apply(snapshot));
        List<FileAction> files = new ArrayList<>(CollectionConverters.asJava(transaction.writeFiles(rows)));
        return new Staged(log, ledger, transaction.metadata(), files);
    }

    /** Returns a commit without rows, for a driver's fence. */
    public Staged nothing() {
        return new Staged(log, ledger, null, List.of());
    }
}
