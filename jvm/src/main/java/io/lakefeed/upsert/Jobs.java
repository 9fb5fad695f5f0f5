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
     * Runs a task for each partition, and takes their results one after the other.
     *
     * @throws NotIndexed as {@code take} does, which gets no further result then
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
            // Spark would wrap it in an exception of its own.
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
