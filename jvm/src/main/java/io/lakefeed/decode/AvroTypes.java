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
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.spark.sql.avro.SchemaConverters;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/**
 * Maps Avro's types to Spark's as {@code from_avro} does, except recursive ones: a record inside a record of its own
 * name is a string, because a table's type is finite (see {@link AvroNested.AsJson}).
 */
final class AvroTypes {
    private static final ObjectMapper JSON = new ObjectMapper();

    private AvroTypes() {}

    /** Parses a schema as it is: neither odd names nor a default of the wrong type stops reading. */
    static Schema parsed(String schema) {
        return new Schema.Parser(NameValidator.NO_VALIDATION).setValidateDefaults(false).parse(schema);
    }

    /**
     * Parses a reader's schema. A nullable field without a default gets the default null: Avro would otherwise refuse
     * all records of writers that do not have the field.
     */
    static Schema reader(String schema) {
        try {
            JsonNode tree = JSON.readTree(schema);
            addNullDefaults(tree);
            return parsed(tree.toString());
        } catch (JsonProcessingException notJson) {
            return parsed(schema); // The parser has the better message.
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

    /** Puts null first: a default must fit the first branch of a union. */
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
     * Returns the type of a reader's schema.
     *
     * @throws org.apache.avro.AvroRuntimeException if it is too large
     */
    static DataType of(Schema schema) {
        return of(SchemaLimits.bounded(schema), Set.of());
    }

    private static DataType of(Schema schema, Set<String> open) {
        return switch (schema.getType()) {
            case RECORD -> open.contains(schema.getFullName()) ? DataTypes.StringType : struct(schema, open);
            case ARRAY -> {
                Schema items = schema.getElementType();
                yield new ArrayType(of(items, open), isNullable(items));
            }
            case MAP -> {
                Schema values = schema.getValueType();
                yield new MapType(DataTypes.StringType, of(values, open), isNullable(values));
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
            struct = struct.add(field.name(), of(field.schema(), inside), isNullable(field.schema()));
        }
        return struct;
    }

    /** Returns the names of the records around a field of {@code record}. */
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

    static List<Schema> types(Schema union) {
        return union.getTypes().stream()
                .filter(each -> each.getType() != Schema.Type.NULL)
                .toList();
    }

    /**
     * Returns the type that holds both numbers of a union of two, int and long or float and double; null for any other
     * union. A union with logical types is none: one column could not show whether a value is a date or a moment.
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

    private static boolean isNullable(Schema schema) {
        return schema.getType() == Schema.Type.NULL
                || schema.getType() == Schema.Type.UNION && types(schema).size() < schema.getTypes().size();
    }

    /**
     * Limits the size of a schema, because producers may register any. The limits are those of {@code
     * lakefeed.records.schema.avro}. They apply to the columns and not to the text: a few named types that use each other
     * can mean millions of columns.
     */
    static final class SchemaLimits {
        /** Columns and fields inside them, at all levels. */
        static final int MOST_COLUMNS = 10_000;

        /** Levels of records, arrays, maps and unions inside each other. */
        static final int DEEPEST = 100;

        private int columns;

        private SchemaLimits() {}

        /**
         * Returns the schema itself.
         *
         * @throws AvroRuntimeException if it has too many columns or levels
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
                    // A recursive record is one column of JSON.
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
                        "it means more than " + MOST_COLUMNS + " columns, fields inside columns counted");
            }
        }
    }
}
