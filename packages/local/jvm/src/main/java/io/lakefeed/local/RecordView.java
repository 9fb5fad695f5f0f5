package io.lakefeed.local;

import io.lakefeed.decode.DecodeFunction;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.SimpleAnalyzer$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionsEvaluator;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.SafeProjection$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonGenerator;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Shows single records of a topic as JSON without a Spark session, so that the JVM is ready in a second.
 *
 * <p>The feed's own {@link DecodeFunction} decodes the records; Spark interprets conditions and columns. An expression
 * can use the fields of the value and, unless a field has the same name, {@code kafka_topic}, {@code kafka_partition},
 * {@code kafka_offset}, {@code kafka_timestamp}, {@code kafka_key}, {@code kafka_headers}, {@code schema_id} and {@code
 * error}. As in a feed's rules, an expression that fails is null.
 */
public final class RecordView {
    private static final StructType HEADERS =
            new StructType().add("key", DataTypes.StringType).add("value", DataTypes.BinaryType);
    private static final StructType POSITION = new StructType()
            .add("kafka_topic", DataTypes.StringType)
            .add("kafka_partition", DataTypes.IntegerType)
            .add("kafka_offset", DataTypes.LongType)
            .add("kafka_timestamp", DataTypes.TimestampType)
            .add("kafka_headers", DataTypes.createArrayType(HEADERS))
            .add("schema_id", DataTypes.IntegerType)
            .add("error", DataTypes.StringType);
    private static final String KEY = "kafka_key";
    private static final long NO_TIME = Long.MIN_VALUE;

    private final DecodeFunction value;
    private final DecodeFunction key;
    private final StructType valueType;
    private final StructType keyType;
    private final List<Integer> shown = new ArrayList<>();
    private final BasePredicate condition;
    private final Function1<InternalRow, InternalRow> columns;
    private final JSONOptions json;
    private final StructType resultType;

    /**
     * Prepares a view.
     *
     * @param valueOptions the options of {@link io.lakefeed.decode.DecodeCatalog} for values
     * @param keyOptions the options of {@link io.lakefeed.decode.DecodeCatalog} for keys
     * @param where a condition in SQL; null for all records
     * @param fields the columns to show, in the form of a SELECT list; null for the whole value
     * @throws IllegalArgumentException if an expression needs more than one record
     */
    public RecordView(Map<String, String> valueOptions, Map<String, String> keyOptions, String where, String fields) {
        SQLConf conf = SQLConf.get();
        conf.setConfString("spark.sql.session.timeZone", "UTC");
        conf.setConfString("spark.sql.ansi.enabled", "false");
        conf.setConfString("spark.sql.codegen.factoryMode", "NO_CODEGEN");
        value = new DecodeFunction("value", new CaseInsensitiveStringMap(valueOptions));
        key = new DecodeFunction("key", new CaseInsensitiveStringMap(keyOptions));
        valueType = value.columns();
        keyType = key.columns();
        StructType input = input();
        List<Attribute> columnsOfInput = new ArrayList<>(CollectionConverters.asJava(DataTypeUtils.toAttributes(input)));
        Seq<Attribute> attributes = CollectionConverters.asScala(columnsOfInput).toSeq();
        LocalRelation records = LocalRelation$.MODULE$.apply(attributes);
        condition = where == null ? null : condition(where, records, attributes);
        Project project = fields == null ? null : project(fields, records);
        columns = project == null ? null : SafeProjection$.MODULE$.create(expressions(project), attributes);
        if (columns instanceof ExpressionsEvaluator random) {
            random.initialize(0);
        }
        StructType result = project == null ? valueType : DataTypeUtils.fromAttributes(project.output());
        resultType = new StructType()
                .add("value", result)
                .add("key", keyDataType())
                .add("schema_id", DataTypes.IntegerType)
                .add("error", DataTypes.StringType);
        json = new JSONOptions(
                scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(Map.of(
                        "ignoreNullFields", "false", "timestampFormat", "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX"))),
                "UTC",
                "");
    }

    /**
     * Returns records, each as a line of JSON with {@code value}, {@code key}, {@code schema_id} and {@code error}. The
     * line of a record that does not meet the condition is empty.
     *
     * @param records the records, one after the other, each as topic, partition (int), offset (long), time in
     *     microseconds (long; the smallest for none), key, value, number of headers (int), and their names and values.
     *     A text or value is its length (int; -1 for null) and its bytes
     */
    public String show(byte[] records) {
        ByteBuffer input = ByteBuffer.wrap(records);
        StringWriter lines = new StringWriter();
        JacksonGenerator generator = new JacksonGenerator(resultType, lines, json);
        while (input.hasRemaining()) {
            InternalRow shownRow = row(input);
            if (shownRow != null) {
                generator.write(shownRow);
                generator.flush();
            }
            lines.append('\n');
        }
        return lines.toString();
    }

    private InternalRow row(ByteBuffer input) {
        UTF8String topic = text(input);
        Integer partition = input.getInt();
        Long offset = input.getLong();
        long time = input.getLong();
        byte[] keyBytes = bytes(input);
        byte[] valueBytes = bytes(input);
        Object[] headers = new Object[input.getInt()];
        for (int at = 0; at < headers.length; at++) {
            headers[at] = new GenericInternalRow(new Object[] {text(input), bytes(input)});
        }
        ArrayData headerRows = new GenericArrayData(headers);
        InternalRow decodedKey = key.invoke(keyBytes, headerRows);
        InternalRow decoded = value.invoke(valueBytes, headerRows);
        InternalRow fields = decoded.isNullAt(0) ? null : decoded.getStruct(0, valueType.size());
        Object error = decoded.isNullAt(2) ? null : decoded.getUTF8String(2);
        if (error == null && !decodedKey.isNullAt(2)) {
            error = UTF8String.fromString("key: " + decodedKey.getUTF8String(2));
        }
        Object schemaId = decoded.isNullAt(1) ? null : decoded.getInt(1);
        Object keyValue = keyOf(decodedKey);
        if (condition == null && columns == null) {
            return new GenericInternalRow(new Object[] {fields, keyValue, schemaId, error});
        }
        Object[] position = {
            topic, partition, offset, time == NO_TIME ? null : time, headerRows, schemaId, error
        };
        Object[] all = new Object[valueType.size() + shown.size()];
        for (int at = 0; fields != null && at < valueType.size(); at++) {
            all[at] = fields.isNullAt(at) ? null : fields.get(at, valueType.apply(at).dataType());
        }
        for (int at = 0; at < shown.size(); at++) {
            int from = shown.get(at);
            all[valueType.size() + at] = from == position.length ? keyValue : position[from];
        }
        InternalRow record = new GenericInternalRow(all);
        if (condition != null && !condition.eval(record)) {
            return null;
        }
        InternalRow selected = columns == null ? fields : columns.apply(record);
        return new GenericInternalRow(new Object[] {selected, keyValue, schemaId, error});
    }

    /** Returns the columns for expressions; puts the columns of {@link #POSITION} and the key into {@link #shown}. */
    private StructType input() {
        Set<String> taken = new LinkedHashSet<>();
        for (String name : valueType.fieldNames()) {
            taken.add(name.toLowerCase(Locale.ROOT));
        }
        StructType all = new StructType(valueType.fields());
        StructField[] facts = POSITION.add(KEY, keyDataType()).fields();
        for (int at = 0; at < facts.length; at++) {
            if (!taken.contains(facts[at].name())) {
                all = all.add(facts[at]);
                shown.add(at);
            }
        }
        return nullable(all);
    }

    /** Makes all columns nullable, because a record without a value has no fields. */
    private static StructType nullable(StructType type) {
        StructType all = new StructType();
        for (StructField field : type.fields()) {
            all = all.add(field.name(), field.dataType(), true);
        }
        return all;
    }

    /** Returns the type that the key is shown in: a text or number is shown itself, not as a record with one field. */
    private DataType keyDataType() {
        return hasSingleKey() ? keyType.apply(0).dataType() : keyType;
    }

    private boolean hasSingleKey() {
        return keyType.size() == 1 && keyType.apply(0).name().equals("value");
    }

    private Object keyOf(InternalRow decodedKey) {
        if (decodedKey.isNullAt(0)) {
            return null;
        }
        InternalRow struct = decodedKey.getStruct(0, keyType.size());
        if (!hasSingleKey()) {
            return struct;
        }
        return struct.isNullAt(0) ? null : struct.get(0, keyType.apply(0).dataType());
    }

    private static BasePredicate condition(String where, LocalRelation records, Seq<Attribute> attributes) {
        Expression parsed = CatalystSqlParser$.MODULE$.parseExpression(where);
        if (!(analyzed(new Filter(parsed, records)) instanceof Filter filter
                && filter.child() instanceof LocalRelation
                && !SubqueryExpression$.MODULE$.hasSubquery(filter.condition()))) {
            throw new IllegalArgumentException(
                    "the condition needs more than one record: use no aggregates, windows or subqueries");
        }
        BasePredicate predicate = Predicate$.MODULE$.create(filter.condition(), attributes);
        predicate.initialize(0);
        return predicate;
    }

    private static Project project(String fields, LocalRelation records) {
        if (CatalystSqlParser$.MODULE$.parsePlan("SELECT " + fields) instanceof Project parsed
                && parsed.child() instanceof OneRowRelation
                && analyzed(new Project(parsed.projectList(), records)) instanceof Project project
                && project.child() instanceof LocalRelation
                && !project.expressions().exists(SubqueryExpression$.MODULE$::hasSubquery)) {
            return project;
        }
        throw new IllegalArgumentException(
                "the columns need more than one record: use no aggregates, windows or subqueries");
    }

    private static Seq<Expression> expressions(Project project) {
        List<Expression> all = new ArrayList<>();
        for (NamedExpression each : CollectionConverters.asJava(project.projectList())) {
            all.add((Expression) each);
        }
        return CollectionConverters.asScala(all).toSeq();
    }

    private static LogicalPlan analyzed(LogicalPlan plan) {
        LogicalPlan resolved = SimpleAnalyzer$.MODULE$.execute(plan);
        SimpleAnalyzer$.MODULE$.checkAnalysis(resolved);
        return ReplaceExpressions$.MODULE$.apply(resolved);
    }

    private static UTF8String text(ByteBuffer input) {
        byte[] text = bytes(input);
        // A header's name can have bytes that are not UTF-8, against Kafka's protocol; Java replaces such bytes.
        return text == null ? null : UTF8String.fromString(new String(text, StandardCharsets.UTF_8));
    }

    private static byte[] bytes(ByteBuffer input) {
        int length = input.getInt();
        if (length < 0) {
            return null;
        }
        byte[] bytes = new byte[length];
        input.get(bytes);
        return bytes;
    }
}
