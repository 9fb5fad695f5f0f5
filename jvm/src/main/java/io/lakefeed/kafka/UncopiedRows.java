package io.lakefeed.kafka;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.V2ExistingTableWriteExec;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * A session extension of Spark that lets the writer of a table read the rows of {@link DecodedRecords} without a copy.
 *
 * <p>After each source of rows, Spark plans a projection that copies every row into an {@code UnsafeRow}. A shuffle and
 * a sort need the copy. A writer does not: it reads a row before the source returns the next row.
 */
public final class UncopiedRows extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {

    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        extensions.injectColumnar(new AbstractFunction1<>() {
            @Override
            public ColumnarRule apply(SparkSession session) {
                return new AfterPlanning();
            }
        });
        return BoxedUnit.UNIT;
    }

    /** Removes the projection, after Spark has added shuffles and sorts to a plan and before it generates code. */
    private static final class AfterPlanning extends ColumnarRule {
        @Override
        public Rule<SparkPlan> postColumnarTransitions() {
            return new WithoutCopy();
        }
    }

    private static final class WithoutCopy extends Rule<SparkPlan> {
        @Override
        public SparkPlan apply(SparkPlan plan) {
            BatchScanExec scan = plan instanceof V2ExistingTableWriteExec write ? onlyCopied(write.query()) : null;
            return scan == null ? plan : plan.withNewChildren(List$.MODULE$.<SparkPlan>empty().$colon$colon(scan));
        }
    }

    /**
     * Returns a query's rows, without a copy if the query only copies {@link DecodedRecords}. The caller has to read a
     * row before it asks for the next one, and must not expect an {@code UnsafeRow}.
     */
    public static RDD<InternalRow> of(Dataset<?> query) {
        BatchScanExec scan = onlyCopied(query.queryExecution().sparkPlan());
        return scan == null ? query.queryExecution().toRdd() : scan.execute();
    }

    /** Returns the scan of {@link DecodedRecords} if the plan only copies its rows; null for any other plan. */
    private static BatchScanExec onlyCopied(SparkPlan plan) {
        return plan instanceof ProjectExec copy
                        && copy.child() instanceof BatchScanExec scan
                        && scan.scan() instanceof DecodedRecords.Ranges
                        && keepsColumns(copy.projectList(), scan.output())
                ? scan
                : null;
    }

    /** Returns whether a projection returns its input columns in order; their names do not matter to writers. */
    private static boolean keepsColumns(Seq<NamedExpression> projected, Seq<AttributeReference> read) {
        if (projected.size() != read.size()) {
            return false;
        }
        for (int at = 0; at < read.size(); at++) {
            NamedExpression column = projected.apply(at);
            Expression source = column instanceof Alias renamed ? renamed.child() : (Expression) column;
            if (!(source instanceof Attribute same) || !same.exprId().equals(read.apply(at).exprId())) {
                return false;
            }
        }
        return true;
    }
}
