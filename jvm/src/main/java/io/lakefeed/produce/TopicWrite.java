package io.lakefeed.produce;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Sends the columns {@code key}, {@code value} and {@code headers} of a batch into a topic, with a producer in each
 * task.
 *
 * <p>Where {@link AvroEncode} makes the value, tasks encode the columns below it themselves: no row is made of a
 * record, and files of columns are not turned into rows at all.
 */
public final class TopicWrite {
    private static final String KEY = "key";
    private static final String VALUE = "value";
    private static final String HEADERS = "headers";
    private static final StructType HEADER = new StructType(new StructField[] {
        DataTypes.createStructField("key", DataTypes.StringType, true),
        DataTypes.createStructField("value", DataTypes.BinaryType, true)
    });

    private TopicWrite() {}

    /**
     * Sends the records; returns when the brokers have acknowledged all of them.
     *
     * @param records as {@code to_records} makes them
     * @param settings those of Kafka's producer, without serializers
     * @return false, and nothing is sent, if there are other columns: Spark's own sink knows more of them
     */
    public static boolean send(Dataset<Row> records, String topic, Map<String, String> settings) {
        Columns columns = Columns.of(records);
        if (columns == null) {
            return false;
        }
        QueryExecution execution = columns.rows.queryExecution();
        SQLExecution.withNewExecutionId(execution, Option.apply("produce " + topic), () -> {
            SparkPlan plan = execution.executedPlan();
            SparkPlan batches = batchesOf(plan);
            int[] places = batches == null ? null : placesOf(plan, batches);
            if (places == null) {
                TopicTask task = new TopicTask(topic, settings, columns.records(null));
                JavaRDD<InternalRow> rows = plan.execute().toJavaRDD();
                rows.foreachPartition(task::sendRows);
            } else {
                TopicTask task = new TopicTask(topic, settings, columns.records(places));
                batches.executeColumnar().toJavaRDD().foreachPartition(task::sendBatches);
            }
            return null;
        });
        return true;
    }

    /** Returns the plan of column batches that a plan only turns into rows; null if there is more to it. */
    private static SparkPlan batchesOf(SparkPlan plan) {
        SparkPlan inner = plan instanceof WholeStageCodegenExec generated ? generated.child() : plan;
        if (inner instanceof ProjectExec project) {
            inner = project.child();
        }
        if (inner instanceof ColumnarToRowExec rows) {
            SparkPlan child = rows.child() instanceof InputAdapter adapter ? adapter.child() : rows.child();
            return child.supportsColumnar() ? child : null;
        }
        return null;
    }

    /** Returns where the columns of a plan stand in the batches; null if some are computed. */
    private static int[] placesOf(SparkPlan plan, SparkPlan batches) {
        List<Attribute> given = CollectionConverters.asJava(batches.output());
        List<Attribute> asked = CollectionConverters.asJava(plan.output());
        int[] places = new int[asked.size()];
        for (int number = 0; number < places.length; number++) {
            int place = 0;
            while (place < given.size() && !given.get(place).exprId().equals(asked.get(number).exprId())) {
                place++;
            }
            if (place == given.size()) {
                return null;
            }
            places[number] = place;
        }
        return places;
    }

    /** The rows that tasks read, and what their columns are. */
    private record Columns(Dataset<Row> rows, int key, int headers, int value, AvroEncode encode, int fields) {
        /** Returns null if there are columns that no record has. */
        static Columns of(Dataset<Row> records) {
            StructType type = records.schema();
            for (StructField field : type.fields()) {
                boolean known =
                        switch (field.name()) {
                            case KEY ->
                                field.dataType() instanceof BinaryType || field.dataType() instanceof StringType;
                            case VALUE -> field.dataType() instanceof BinaryType;
                            case HEADERS -> field.dataType().sameType(DataTypes.createArrayType(HEADER));
                            default -> false;
                        };
                if (!known) {
                    return null;
                }
            }
            List<String> names = List.of(type.fieldNames());
            if (!names.contains(VALUE) || names.size() != names.stream().distinct().count()) {
                return null;
            }
            Columns encoded = beforeEncoding(records);
            return encoded != null
                    ? encoded
                    : new Columns(records, names.indexOf(KEY), names.indexOf(HEADERS), names.indexOf(VALUE), null, 0);
        }

        /** Puts the arguments of the encoder in the place of the value; null if it is made otherwise. */
        private static Columns beforeEncoding(Dataset<Row> records) {
            if (!(records.queryExecution().analyzed() instanceof Project project)) {
                return null;
            }
            List<NamedExpression> found = new ArrayList<>();
            int key = -1;
            int headers = -1;
            int value = -1;
            AvroEncode encode = null;
            List<Expression> fields = List.of();
            for (NamedExpression column : CollectionConverters.asJava(project.projectList())) {
                switch (column.name()) {
                    case KEY -> key = found.size();
                    case HEADERS -> headers = found.size();
                    default -> {
                        if (column instanceof Alias alias
                                && alias.child() instanceof Invoke call
                                && call.targetObject() instanceof Literal target
                                && target.value() instanceof AvroEncode given
                                && call.arguments().apply(0) instanceof CreateNamedStruct struct) {
                            encode = given;
                            fields = CollectionConverters.asJava(struct.valExprs());
                        }
                        continue;
                    }
                }
                found.add(column);
            }
            if (encode == null) {
                return null;
            }
            value = found.size();
            for (Expression field : fields) {
                found.add(field instanceof NamedExpression named ? named : named(field));
            }
            LogicalPlan plan = new Project(CollectionConverters.asScala(found).toList(), project.child());
            return new Columns(
                    Dataset$.MODULE$.ofRows(records.sparkSession(), plan), key, headers, value, encode, fields.size());
        }

        private static Alias named(Expression field) {
            return new Alias(
                    field,
                    "field",
                    NamedExpression.newExprId(),
                    CollectionConverters.asScala(List.<String>of()).toList(),
                    Option.empty(),
                    CollectionConverters.asScala(List.<String>of()).toList());
        }

        /** Returns what makes records of the rows, whose columns stand at these places; null for where they are. */
        RowRecords records(int[] places) {
            int[] of = new int[fields];
            for (int number = 0; number < fields; number++) {
                of[number] = at(places, value + number);
            }
            return new RowRecords(
                    at(places, key),
                    key >= 0 && rows.schema().fields()[key].dataType() instanceof StringType,
                    at(places, headers),
                    encode == null ? at(places, value) : -1,
                    encode == null ? null : encode.of(of));
        }

        private static int at(int[] places, int column) {
            return places == null || column < 0 ? column : places[column];
        }
    }
}
