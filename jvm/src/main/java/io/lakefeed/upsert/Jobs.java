package io.lakefeed.upsert;

import java.io.Serializable;
import java.util.function.Consumer;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.SQLExecution$;
import scala.Function2;
import scala.Option;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** Runs Spark's tasks on the rows of a query. */
final class Jobs {
    private Jobs() {}

    /**
     * Runs a task for each partition, and passes the tasks' results to {@code take} one after the other.
     *
     * @throws NotIndexed if {@code take} throws it; then {@code take} gets no further results
     */
    static <R> void run(
            Dataset<Row> of,
            String name,
            RDD<InternalRow> rows,
            Function2<TaskContext, Iterator<InternalRow>, R> task,
            Class<R> type,
            Consumer<R> take) {
        SQLExecution$.MODULE$.withNewExecutionId(of.queryExecution(), Option.apply(name), () -> {
            Taking<R> taking = new Taking<>(take);
            of.sparkSession().sparkContext().runJob(rows, task, taking, ClassTag$.MODULE$.apply(type));
            // The refusal is thrown here and not by apply(), because Spark would wrap it in its own exception.
            if (taking.refused != null) {
                throw taking.refused;
            }
            return null;
        });
    }

    private static final class Taking<R> extends AbstractFunction2<Object, R, BoxedUnit> implements Serializable {
        private static final long serialVersionUID = 1L;
        private final transient Consumer<R> take;
        private transient NotIndexed refused;

        Taking(Consumer<R> take) {
            this.take = take;
        }

        @Override
        public BoxedUnit apply(Object partition, R result) {
            try {
                if (refused == null) {
                    take.accept(result);
                }
            } catch (NotIndexed why) {
                refused = why;
            }
            return BoxedUnit.UNIT;
        }
    }
}
