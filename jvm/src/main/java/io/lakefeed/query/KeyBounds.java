package io.lakefeed.query;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The smallest and the greatest value of each key column in a batch, as conditions of a MERGE.
 *
 * <p>The conditions are expressions with Spark's own values and not SQL text. SQL text would change some values: a time
 * in the hour that a time zone has twice, and a string that contains {@code ${…}}.
 */
public record KeyBounds(InternalRow row, DataType[] types, List<String> keys) {
    /** Returns the bounds in the row of an aggregation: a text, then the smallest and greatest value of each key. */
    public static KeyBounds of(Dataset<Row> summary, List<String> keys) {
        QueryExecution execution = summary.queryExecution();
        InternalRow[] rows = SQLExecution$.MODULE$.withNewExecutionId(
                execution, Option.apply("summary"), () -> execution.executedPlan().executeCollect());
        DataType[] types = new DataType[summary.schema().length()];
        for (int at = 0; at < types.length; at++) {
            types[at] = summary.schema().apply(at).dataType();
        }
        return new KeyBounds(rows[0].copy(), types, List.copyOf(keys));
    }

    /** Returns the first column of the aggregation's row, a text. */
    public String text() {
        return row.getUTF8String(0).toString();
    }

    /** Runs a MERGE into the table {@code t}, in which only rows within the bounds can match. */
    public void merge(org.apache.spark.sql.SparkSession spark, String statement) {
        MergeIntoTable merge = (MergeIntoTable) Statements.plan(spark, statement);
        Expression condition = merge.mergeCondition();
        for (Expression bound : conditions()) {
            condition = new And(condition, bound);
        }
        Dataset.ofRows(
                (SparkSession) spark,
                new MergeIntoTable(
                        merge.targetTable(),
                        merge.sourceTable(),
                        condition,
                        merge.matchedActions(),
                        merge.notMatchedActions(),
                        merge.notMatchedBySourceActions(),
                        merge.withSchemaEvolution()));
    }

    private List<Expression> conditions() {
        List<Expression> conditions = new ArrayList<>();
        for (int at = 0; at < keys.size(); at++) {
            int lowest = 1 + 2 * at;
            if (!row.isNullAt(lowest)) {
                Expression column = new UnresolvedAttribute(CollectionConverters.asScala(List.of("t", keys.get(at)))
                        .toSeq());
                conditions.add(new GreaterThanOrEqual(column, literal(lowest)));
                conditions.add(new LessThanOrEqual(column, literal(lowest + 1)));
            }
        }
        return conditions;
    }

    private Literal literal(int at) {
        return new Literal(row.get(at, types[at]), types[at]);
    }
}
