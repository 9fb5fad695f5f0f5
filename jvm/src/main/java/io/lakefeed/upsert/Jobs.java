package io.lakefeed.upsert;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.Table;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.source.SparkRewriteTable;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function2;
import scala.Option;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.runtime.BoxedUnit;

/** Runs Spark jobs on the rows of a query, with a task per partition. */
final class Jobs {
    private Jobs() {}

    /** Runs a task for each partition, and passes the tasks' results to {@code take} one after the other. */
    static <R> void run(
            Dataset<Row> of,
            String name,
            RDD<InternalRow> rows,
            Function2<TaskContext, Iterator<InternalRow>, R> task,
            Class<R> type,
            Consumer<R> take) {
        SQLExecution$.MODULE$.withNewExecutionId(of.queryExecution(), Option.apply(name), () -> {
            Function2<Object, R, BoxedUnit> taking = (partition, result) -> {
                take.accept(result);
                return BoxedUnit.UNIT;
            };
            of.sparkSession().sparkContext().runJob(rows, task, taking, ClassTag$.MODULE$.apply(type));
            return null;
        });
    }

    /** Runs a task for each partition of the rows in data files of a table, with only these columns. */
    static <R> void run(
            SparkSession spark,
            Table table,
            List<FileScanTask> files,
            List<String> names,
            Map<String, String> options,
            String name,
            Function<StructType, Function2<TaskContext, Iterator<InternalRow>, R>> task,
            Class<R> type,
            Consumer<R> take) {
        if (files.isEmpty()) {
            return;
        }
        String group = UUID.randomUUID().toString();
        ScanTaskSetManager.get().stageTasks(table, group, files);
        try {
            // Make Spark read exactly these files, as Iceberg does for a compaction.
            Dataset<Row> all = Dataset.ofRows(
                    spark,
                    DataSourceV2Relation.create(
                            new Staged(table, group),
                            Option.empty(),
                            Option.empty(),
                            new CaseInsensitiveStringMap(options),
                            Option.empty()));
            Column[] columns = names.stream().map(each -> functions.col("`" + each.replace("`", "``") + "`")).toArray(Column[]::new);
            Dataset<Row> rows = all.select(columns);
            run(rows, name, rows.queryExecution().toRdd(), task.apply(rows.schema()), type, take);
        } finally {
            ScanTaskSetManager.get().removeTasks(table, group);
        }
    }

    /**
     * A table that consists of the staged files. Its columns do not include the row ids of format version 3: with them,
     * Spark would find no metadata columns.
     */
    private static final class Staged extends SparkRewriteTable {
        Staged(Table table, String group) {
            super(table, group);
        }

        @Override
        public org.apache.spark.sql.connector.catalog.Column[] columns() {
            return Arrays.stream(super.columns())
                    .filter(each -> !MetadataColumns.isMetadataColumn(each.name()))
                    .toArray(org.apache.spark.sql.connector.catalog.Column[]::new);
        }
    }
}
