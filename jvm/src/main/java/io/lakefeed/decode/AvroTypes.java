package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.spark.sql.avro.SchemaConverters;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/**
 * Maps Avro's types to Spark's as {@code from_avro} does, except recursive types: because a table's type is finite, a
 * record inside a record of the same name becomes a string with JSON ({@link AvroNested.AsJson}).
 */
final class AvroTypes {
    private static final ObjectMapper JSON = new ObjectMapper();

    private AvroTypes() {}

    static Schema parsed(String schema) {
        return SparkApi.parser().parse(schema);
    }

    /**
     * Parses a reader's schema. Nullable fields without a default get the default null: otherwise Avro would refuse the
     * records of writers without such a field.
     */
    static Schema reader(String schema) {
        try {
            JsonNode tree = JSON.readTree(schema);
            addNullDefaults(tree);
            return parsed(tree.toString());
        } catch (JsonProcessingException notJson) {
            return parsed(schema); // The text is not JSON; Avro's parser reports a better error than Jackson.
        }
    }

    private static void addNullDefaults(JsonNode schema) {
        if (schema.isArray()) {
            schema.forEach(AvroTypes::addNullDefaults);
            return;
        }
        for (String part : List.of("type", "items", "values")) {
            if (schema.path(part).isContainerNode()) {
                addNullDefaults(schema.get(part));
            }
        }
        for (JsonNode field : schema.path("fields")) {
            addNullDefaults(field);
            if (field instanceof ObjectNode object && !field.has("default")) {
                if (isNull(field.path("type"))) {
                    object.putNull("default");
                } else if (field.path("type") instanceof ArrayNode union) {
                    putNullFirst(object, union);
                }
            }
        }
    }

    private static boolean isNull(JsonNode type) {
        return (type.isObject() ? type.path("type") : type).asText().equals("null");
    }

    /** Gives a field the default null, and moves null to the front of its union, which must fit the default. */
    private static void putNullFirst(ObjectNode field, ArrayNode union) {
        for (int at = 0; at < union.size(); at++) {
            if (isNull(union.get(at))) {
                union.insert(0, union.remove(at));
                field.putNull("default");
                return;
            }
        }
    }

    /**
     * Returns Spark's type for a reader's schema.
     *
     * @throws org.apache.avro.AvroRuntimeException if the schema is too large
     */
    static DataType of(Schema schema) {
        return of(SchemaLimits.bounded(schema), Set.of());
    }

    private static DataType of(Schema schema, Set<String> open) {
        return switch (schema.getType()) {
            case RECORD -> open.contains(schema.getFullName()) ? DataTypes.StringType : struct(schema, open);
            case ARRAY -> {
                Schema items = schema.getElementType();
                yield new ArrayType(of(items, open), items.isNullable());
            }
            case MAP -> {
                Schema values = schema.getValueType();
                yield new MapType(DataTypes.StringType, of(values, open), values.isNullable());
            }
            case UNION -> union(schema, open);
            default -> single(schema);
        };
    }

    static DataType single(Schema schema) {
        return SchemaConverters.toSqlType(schema).dataType();
    }

    private static StructType struct(Schema record, Set<String> open) {
        Set<String> inside = with(open, record);
        StructType struct = new StructType();
        for (Schema.Field field : record.getFields()) {
            struct = struct.add(field.name(), of(field.schema(), inside), field.schema().isNullable());
        }
        return struct;
    }

    /** Returns {@code open}, the names of the records around {@code record}, plus the name of {@code record}. */
    static Set<String> with(Set<String> open, Schema record) {
        Set<String> inside = new HashSet<>(open);
        inside.add(record.getFullName());
        return inside;
    }

    private static DataType union(Schema union, Set<String> open) {
        List<Schema> types = types(union);
        DataType number = number(types);
        if (number != null) {
            return number;
        }
        if (types.size() < 2) {
            return types.isEmpty() ? DataTypes.NullType : of(types.get(0), open);
        }
        StructType members = new StructType();
        for (int at = 0; at < types.size(); at++) {
            members = members.add(member(at), of(types.get(at), open), true);
        }
        return members;
    }

    /** Returns the types of a union without null. */
    static List<Schema> types(Schema union) {
        return union.getTypes().stream()
                .filter(each -> each.getType() != Schema.Type.NULL)
                .toList();
    }

    /**
     * Returns the wider type of a union of int and long, or of float and double; null for other unions. It is also null
     * if one of the two has a logical type: the column would not show whether a value is a date or a timestamp.
     */
    static DataType number(List<Schema> types) {
        if (types.size() != 2 || types.stream().anyMatch(each -> each.getLogicalType() != null)) {
            return null;
        }
        Schema.Type one = types.get(0).getType();
        Schema.Type two = types.get(1).getType();
        if (isPair(one, two, Schema.Type.INT, Schema.Type.LONG)) {
            return DataTypes.LongType;
        }
        return isPair(one, two, Schema.Type.FLOAT, Schema.Type.DOUBLE) ? DataTypes.DoubleType : null;
    }

    private static boolean isPair(Schema.Type one, Schema.Type two, Schema.Type narrow, Schema.Type wide) {
        return one == narrow && two == wide || one == wide && two == narrow;
    }

    static String member(int at) {
        return "member" + at;
    }

    /**
     * Limits the size of a schema, because producers can register any schema. {@code lakefeed.records.schema.avro} has
     * the same limits. The limits count columns and not characters, because a few named types that use each other can
     * mean millions of columns.
     */
    static final class SchemaLimits {
        /** The most columns, including the fields inside columns at all levels. */
        static final int MOST_COLUMNS = 10_000;

        /** The most levels of records, arrays, maps and unions. */
        static final int DEEPEST = 100;

        private int columns;

        private SchemaLimits() {}

        /**
         * Returns the schema, if it is within the limits.
         *
         * @throws AvroRuntimeException if the schema has too many columns or levels
         */
        static Schema bounded(Schema schema) {
            new SchemaLimits().count(schema, Set.of(), 1);
            return schema;
        }

        private void count(Schema schema, Set<String> open, int depth) {
            if (depth > DEEPEST) {
                throw new AvroRuntimeException("it has more than " + DEEPEST + " levels inside each other");
            }
            switch (schema.getType()) {
                case ARRAY -> count(schema.getElementType(), open, depth + 1);
                case MAP -> count(schema.getValueType(), open, depth + 1);
                case UNION -> {
                    List<Schema> types = AvroTypes.types(schema);
                    int more = types.size() > 1 ? 1 : 0;
                    for (Schema each : types) {
                        add(more);
                        count(each, open, depth + more);
                    }
                }
                case RECORD -> {
                    // Do not count the fields of a recursive record: it is one column of JSON.
                    if (!open.contains(schema.getFullName())) {
                        Set<String> inside = AvroTypes.with(open, schema);
                        for (Schema.Field field : schema.getFields()) {
                            add(1);
                            count(field.schema(), inside, depth + 1);
                        }
                    }
                }
                default -> {}
            }
        }

        private void add(int more) {
            columns += more;
            if (columns > MOST_COLUMNS) {
                throw new AvroRuntimeException(
                        "it has more than " + MOST_COLUMNS + " columns, fields inside columns counted");
            }
        }
    }
}
