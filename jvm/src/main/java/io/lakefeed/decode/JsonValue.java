package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonParser.NumberType;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.StringWriter;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads one JSON value as a value of the reader's type; worked out once for a type. */
interface JsonValue {
    /** A field of the reader's Avro schema with this property, set to true, takes any JSON as text. */
    String ANY = "lakefeed.json";

    /**
     * Spark's internal value.
     *
     * @param parser at the value's first token; at its last one afterwards
     * @throws BadRecord if it is no value of the type
     */
    Object read(JsonParser parser) throws IOException;

    /**
     * How to read a record.
     *
     * @param schema the reader's, for defaults and for fields of any JSON; null if there is none: then strings take
     *     any JSON
     * @param zone of moments that do not say theirs
     * @throws IllegalArgumentException if the type has a part that JSON never is
     */
    static Record record(StructType type, Schema schema, ZoneId zone) {
        return new Compiler(zone).record(type, schema);
    }

    /** Makes the readers of a type's parts. */
    record Compiler(ZoneId zone) {
        private Record record(StructType type, Schema schema) {
            Map<String, Integer> slots = new HashMap<>();
            JsonValue[] values = new JsonValue[type.size()];
            Object[] defaults = new Object[type.size()];
            for (int slot = 0; slot < type.size(); slot++) {
                StructField field = type.fields()[slot];
                slots.put(field.name(), slot);
                Schema.Field of = schema == null ? null : schema.getFields().get(slot);
                boolean any = of == null || Boolean.TRUE.equals(of.getObjectProp(ANY));
                values[slot] = of(field.dataType(), of == null ? null : AvroDefault.withoutNull(of.schema()), any);
                if (of != null) {
                    of.aliases().stream().filter(alias -> schema.getField(alias) == null).forEach(alias -> slots.put(alias, of.pos()));
                    defaults[slot] = of.hasDefaultValue() ? AvroDefault.of(of, field.dataType()) : null;
                }
            }
            return new Record(type, slots, values, defaults);
        }

        private JsonValue of(DataType type, Schema schema, boolean any) {
            if (type instanceof StructType struct) {
                return record(struct, schema != null && schema.getType() == Schema.Type.RECORD ? schema : null);
            }
            if (type instanceof ArrayType array) {
                Schema items = schema == null ? null : AvroDefault.withoutNull(schema.getElementType());
                return new Items(of(array.elementType(), items, any), array.containsNull());
            }
            if (type instanceof MapType map) {
                if (!(map.keyType() instanceof StringType)) {
                    throw new IllegalArgumentException("keys of JSON objects are text, not " + map.keyType().simpleString());
                }
                Schema values = schema == null ? null : AvroDefault.withoutNull(schema.getValueType());
                return new Entries(of(map.valueType(), values, any), map.valueContainsNull());
            }
            TextValue text = TextValue.as(type, zone);
            if (text == null) {
                throw new IllegalArgumentException("JSON values cannot become " + type.simpleString());
            }
            // A record inside itself is text in Spark's type.
            boolean recursive = schema != null && schema.getType() == Schema.Type.RECORD;
            return new Single(type, text, type instanceof StringType && (any || recursive));
        }
    }

    /** The error for a value that is none of a type. */
    static BadRecord misfit(JsonParser parser, String type) throws IOException {
        String text = parser.currentToken().isScalarValue() ? parser.getText() : kind(parser.currentToken());
        String shown = text.length() > 100 ? text.substring(0, 100) + "…" : text;
        return new BadRecord("field " + path(parser) + " has not the type of the schema: " + shown + " is no " + type);
    }

    private static String path(JsonParser parser) {
        String pointer = parser.getParsingContext().pathAsPointer().toString();
        return pointer.isEmpty() ? "" : pointer.substring(1).replace('/', '.');
    }

    private static String kind(JsonToken token) {
        return token == JsonToken.START_ARRAY ? "an array" : "an object";
    }

    /** A text, number, boolean or moment. */
    record Single(DataType type, TextValue text, boolean any) implements JsonValue {
        @Override
        public Object read(JsonParser parser) throws IOException {
            Object value =
                    switch (parser.currentToken()) {
                        case VALUE_STRING -> text.of(parser.getText());
                        case VALUE_NUMBER_INT, VALUE_NUMBER_FLOAT -> number(parser);
                        case VALUE_TRUE, VALUE_FALSE -> type instanceof BooleanType ? (Object) parser.getBooleanValue() : null;
                        default -> null;
                    };
            if (value == null && any) {
                return json(parser);
            }
            if (value == null) {
                throw misfit(parser, type.simpleString());
            }
            return value;
        }

        private Object number(JsonParser parser) throws IOException {
            if (!TextValue.isNumber(type)) {
                return null;
            }
            if (parser.isNaN()) {
                return text.of(parser.getText());
            }
            boolean whole = parser.currentToken() == JsonToken.VALUE_NUMBER_INT;
            if (type instanceof LongType && whole && parser.getNumberType() != NumberType.BIG_INTEGER) {
                return parser.getLongValue();
            }
            if (type instanceof DoubleType) {
                double value = parser.getDoubleValue();
                return Double.isInfinite(value) ? null : value;
            }
            return TextValue.number(parser.getDecimalValue(), type);
        }

        private static UTF8String json(JsonParser parser) throws IOException {
            StringWriter text = new StringWriter();
            try (JsonGenerator generator = JsonReader.FACTORY.createGenerator(text)) {
                generator.copyCurrentStructureExact(parser);
            }
            return UTF8String.fromString(text.toString());
        }
    }

    /** An array. */
    record Items(JsonValue item, boolean nullable) implements JsonValue {
        @Override
        public Object read(JsonParser parser) throws IOException {
            if (parser.currentToken() != JsonToken.START_ARRAY) {
                throw misfit(parser, "array");
            }
            List<Object> items = new ArrayList<>();
            while (parser.nextToken() != JsonToken.END_ARRAY) {
                items.add(orNull(parser, item, nullable));
            }
            return new GenericArrayData(items.toArray());
        }
    }

    /** An object whose keys are data. */
    record Entries(JsonValue value, boolean nullable) implements JsonValue {
        @Override
        public Object read(JsonParser parser) throws IOException {
            if (parser.currentToken() != JsonToken.START_OBJECT) {
                throw misfit(parser, "object");
            }
            List<Object> keys = new ArrayList<>();
            List<Object> values = new ArrayList<>();
            while (parser.nextToken() != JsonToken.END_OBJECT) {
                keys.add(UTF8String.fromString(parser.currentName()));
                parser.nextToken();
                values.add(orNull(parser, value, nullable));
            }
            return new ArrayBasedMapData(new GenericArrayData(keys.toArray()), new GenericArrayData(values.toArray()));
        }
    }

    private static Object orNull(JsonParser parser, JsonValue value, boolean nullable) throws IOException {
        if (parser.currentToken() != JsonToken.VALUE_NULL) {
            return value.read(parser);
        }
        if (!nullable) {
            throw new BadRecord("field " + path(parser) + " is missing or null");
        }
        return null;
    }

    /** An object whose keys are the fields of a struct; others are passed over. */
    record Record(StructType type, Map<String, Integer> slots, JsonValue[] values, Object[] defaults) implements JsonValue {
        @Override
        public InternalRow read(JsonParser parser) throws IOException {
            if (parser.currentToken() != JsonToken.START_OBJECT) {
                throw misfit(parser, "object");
            }
            Object[] row = defaults.clone();
            while (parser.nextToken() != JsonToken.END_OBJECT) {
                Integer slot = slots.get(parser.currentName());
                JsonToken first = parser.nextToken();
                if (slot == null) {
                    parser.skipChildren();
                } else {
                    row[slot] = first == JsonToken.VALUE_NULL ? null : values[slot].read(parser);
                }
            }
            for (int slot = 0; slot < row.length; slot++) {
                if (row[slot] == null && !type.fields()[slot].nullable()) {
                    String around = path(parser);
                    throw new BadRecord("field " + (around.isEmpty() ? "" : around + ".") + type.fields()[slot].name()
                            + " is missing or null");
                }
            }
            return new GenericInternalRow(row);
        }
    }
}
