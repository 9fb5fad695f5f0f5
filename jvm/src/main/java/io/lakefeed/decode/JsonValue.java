package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonParser.NumberType;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads a JSON value as one type of the reader's schema; created once for each occurrence of a type. */
interface JsonValue {
    /** A property in the reader's schema: the column has the field's JSON, of any type, as text. */
    String ANY = "lakefeed.json";

    /** A property in the reader's schema: the field's name in JSON, if it is no valid name in Avro. */
    String NAME = "lakefeed.json.name";

    /**
     * Reads a value and returns it in Spark's internal form.
     *
     * @param in the input, which is at the value's first token before the call and at its last token after the call
     * @throws BadRecord if the value does not fit the type
     */
    Object read(JsonInput in) throws IOException;

    /**
     * Returns the reader of a record.
     *
     * @param schema the reader's schema, for defaults and for fields with any JSON; if null, string columns accept any
     * JSON
     * @throws IllegalArgumentException if the type has a part that no JSON value can become
     */
    static Record record(StructType type, Schema schema, TextValue.Rules rules) {
        return new Compiler(rules).record(type, schema, false, "");
    }

    record Compiler(TextValue.Rules rules) {
        /**
         * Creates the reader of a record.
         *
         * @param repeated whether one Kafka record can contain any number of these records, so that their memory must
         *     be charged
         */
        private Record record(StructType type, Schema schema, boolean repeated, String path) {
            Map<String, Integer> slots = new HashMap<>();
            JsonValue[] values = new JsonValue[type.size()];
            Object[] defaults = new Object[type.size()];
            String[] names = new String[type.size()];
            for (int slot = 0; slot < type.size(); slot++) {
                StructField field = type.fields()[slot];
                Schema.Field of = schema == null ? null : schema.getFields().get(slot);
                String name = of == null ? null : of.getProp(NAME);
                names[slot] = name == null ? field.name() : name;
                slots.put(names[slot], slot);
                boolean any = of == null || Boolean.TRUE.equals(of.getObjectProp(ANY));
                Schema inner = of == null ? null : AvroDefault.withoutNull(of.schema());
                values[slot] = of(field.dataType(), inner, any, repeated, path.isEmpty() ? names[slot] : path + "." + names[slot]);
                if (of != null) {
                    of.aliases().stream().filter(alias -> schema.getField(alias) == null).forEach(alias -> slots.put(alias, of.pos()));
                    defaults[slot] = of.hasDefaultValue() ? AvroDefault.of(of, field.dataType()) : null;
                }
            }
            return new Record(type, slots, names, values, defaults, repeated, path);
        }

        private JsonValue of(DataType type, Schema schema, boolean any, boolean repeated, String path) {
            if (type instanceof StructType struct) {
                return record(struct, schema != null && schema.getType() == Schema.Type.RECORD ? schema : null, repeated, path);
            }
            if (type instanceof ArrayType array) {
                Schema items = schema == null ? null : AvroDefault.withoutNull(schema.getElementType());
                return new Items(of(array.elementType(), items, any, true, path), array.containsNull());
            }
            if (type instanceof MapType map) {
                if (!(map.keyType() instanceof StringType)) {
                    throw new IllegalArgumentException("keys of JSON objects are text: the column " + path
                            + " cannot be a map with keys of type " + map.keyType().simpleString());
                }
                Schema values = schema == null ? null : AvroDefault.withoutNull(schema.getValueType());
                return new Entries(of(map.valueType(), values, any, true, path), map.valueContainsNull());
            }
            if (type == DataTypes.NullType) {
                return in -> {
                    throw in.misfit("null");
                };
            }
            if (SparkApi.isVariant(type)) {
                return JsonInput::variant;
            }
            TextValue text = TextValue.as(type, rules);
            if (text == null) {
                throw new IllegalArgumentException(
                        "JSON values cannot become " + type.simpleString() + ", the type of column " + path);
            }
            // A recursive record has the type string: the column has its JSON.
            boolean recursive = schema != null && schema.getType() == Schema.Type.RECORD;
            boolean quoted = rules.lenient() || !(TextValue.isNumber(type) || type == DataTypes.BooleanType);
            return new Single(type, text, type instanceof StringType && (any || recursive), quoted, rules.lenient());
        }
    }

    /**
     * Reads a text, number, boolean or timestamp.
     *
     * @param any whether a value of another type is accepted, and becomes its JSON
     * @param quoted whether a string is accepted
     */
    record Single(DataType type, TextValue text, boolean any, boolean quoted, boolean lenient) implements JsonValue {
        @Override
        public Object read(JsonInput in) throws IOException {
            return switch (in.parser.currentToken()) {
                case VALUE_STRING -> quoted ? fitting(text.of(in.text()), "a string of another form") : other(in);
                case VALUE_NUMBER_INT, VALUE_NUMBER_FLOAT -> TextValue.isNumber(type)
                        ? fitting(number(in.parser), "a number that it cannot hold")
                        : other(in);
                case VALUE_TRUE, VALUE_FALSE -> type == DataTypes.BooleanType ? (Object) in.parser.getBooleanValue() : other(in);
                default -> other(in);
            };
        }

        private Object fitting(Object value, String found) {
            if (value == null) {
                throw new BadRecord("expected " + type.simpleString() + ", found " + found);
            }
            return value;
        }

        private Object other(JsonInput in) throws IOException {
            if (!any) {
                throw in.misfit(type.simpleString());
            }
            return in.json();
        }

        private Object number(JsonParser parser) throws IOException {
            if (parser.getTextLength() > TextValue.LONGEST_NUMBER) {
                return null;
            }
            boolean whole = parser.currentToken() == JsonToken.VALUE_NUMBER_INT;
            if (whole && parser.getNumberType() != NumberType.BIG_INTEGER) {
                Object value = TextValue.number(parser.getLongValue(), type);
                if (value != null) {
                    return value;
                }
            }
            return parser.isNaN() ? text.of(parser.getText()) : TextValue.number(parser.getText(), type, lenient);
        }
    }

    record Items(JsonValue item, boolean nullable) implements JsonValue {
        @Override
        public Object read(JsonInput in) throws IOException {
            if (in.parser.currentToken() != JsonToken.START_ARRAY) {
                throw in.misfit("an array");
            }
            List<Object> items = new ArrayList<>();
            try {
                while (in.parser.nextToken() != JsonToken.END_ARRAY) {
                    in.budget.charge(MemoryBudget.OBJECT);
                    items.add(orNull(in, item, nullable));
                }
            } catch (IOException | RuntimeException bad) {
                throw JsonInput.reason(bad).item(items.size());
            }
            return new GenericArrayData(items.toArray());
        }
    }

    /** Reads an object whose keys are data, as a map. */
    record Entries(JsonValue value, boolean nullable) implements JsonValue {
        @Override
        public Object read(JsonInput in) throws IOException {
            if (in.parser.currentToken() != JsonToken.START_OBJECT) {
                throw in.misfit("an object");
            }
            Set<String> known = new HashSet<>();
            List<Object> keys = new ArrayList<>();
            List<Object> values = new ArrayList<>();
            try {
                while (in.parser.nextToken() != JsonToken.END_OBJECT) {
                    in.budget.charge(4 * MemoryBudget.OBJECT);
                    String key = in.name();
                    if (!known.add(key)) {
                        throw new BadRecord("a duplicate key");
                    }
                    in.parser.nextToken();
                    values.add(orNull(in, value, nullable));
                    keys.add(UTF8String.fromString(key));
                }
            } catch (IOException | RuntimeException bad) {
                throw JsonInput.reason(bad).item(keys.size());
            }
            return new ArrayBasedMapData(new GenericArrayData(keys.toArray()), new GenericArrayData(values.toArray()));
        }
    }

    private static Object orNull(JsonInput in, JsonValue value, boolean nullable) throws IOException {
        if (in.parser.currentToken() != JsonToken.VALUE_NULL) {
            return value.read(in);
        }
        if (!nullable) {
            throw new BadRecord("missing or null");
        }
        return null;
    }

    /** Reads an object whose keys are the fields of a struct; ignores other keys. */
    final class Record implements JsonValue {
        /** Stands for a field that has not occurred in the record. */
        private static final Object ABSENT = new Object();

        private static final int ROW = 40;
        private static final int REFERENCE = 8;

        private final Map<String, Integer> slots;
        private final String[] names;
        private final JsonValue[] values;
        private final Object[] defaults;
        private final boolean[] required;
        private final Object[] unset;
        private final int charge;
        private final String path;

        private Record(
                StructType type,
                Map<String, Integer> slots,
                String[] names,
                JsonValue[] values,
                Object[] defaults,
                boolean repeated,
                String path) {
            this.path = path;
            this.slots = slots;
            this.names = names;
            this.values = values;
            this.defaults = defaults;
            this.required = new boolean[values.length];
            this.unset = new Object[values.length];
            for (int slot = 0; slot < values.length; slot++) {
                required[slot] = !type.fields()[slot].nullable();
                unset[slot] = ABSENT;
            }
            this.charge = repeated ? ROW + REFERENCE * values.length : 0;
        }

        @Override
        public InternalRow read(JsonInput in) throws IOException {
            if (in.parser.currentToken() != JsonToken.START_OBJECT) {
                throw in.misfit("an object");
            }
            in.budget.charge(charge);
            Object[] row = unset.clone();
            Integer slot = null;
            String name = null;
            try {
                while (in.parser.nextToken() != JsonToken.END_OBJECT) {
                    name = in.parser.currentName();
                    slot = slots.get(name);
                    if (slot == null && in.unknown.isError()) {
                        throw new BadRecord(LeftOut.refusal(name, slots.keySet())).at(name);
                    }
                    JsonToken first = in.parser.nextToken();
                    if (path.isEmpty()) {
                        in.isIncomplete = slot == null;
                    }
                    if (slot == null) {
                        in.isIncomplete = true;
                        boolean hasValue = in.skipValue();
                        if (in.leftOut != null) {
                            in.leftOut.note(path, name, slots.keySet());
                            if (hasValue && in.unknown.refused() != null) {
                                in.leftOut.noteColumn(path, name, in.unknown);
                            }
                        }
                    } else if (row[slot] != ABSENT) {
                        throw new BadRecord("occurs twice in one object");
                    } else {
                        row[slot] = first == JsonToken.VALUE_NULL ? null : values[slot].read(in);
                        slot = null;
                    }
                    if (path.isEmpty() && in.isIncomplete && in.unknown.isKept()) {
                        in.keep(name);
                    }
                }
            } catch (IOException | RuntimeException bad) {
                BadRecord reason = JsonInput.reason(bad);
                if (slot == null && in.parser.currentName() != name) {
                    slot = slots.get(in.parser.currentName()); // The parser has failed at this field's value.
                }
                throw slot == null ? reason : reason.at(names[slot]);
            }
            for (int at = 0; at < row.length; at++) {
                if (row[at] == ABSENT) {
                    row[at] = defaults[at];
                }
                if (row[at] == null && required[at]) {
                    throw new BadRecord("missing or null").at(names[at]);
                }
            }
            return new GenericInternalRow(row);
        }
    }
}
