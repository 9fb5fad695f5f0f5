package io.lakefeed.decode;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.DecimalNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Reads the same bytes with Avro's own reader, in {@link Canonical}'s form. */
final class AvroReference {
    private static final ObjectMapper EXACT = new ObjectMapper().enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS);

    private AvroReference() {}

    /** Returns the differences of the two readers for each payload, and the number of rows for each pair of schemas. */
    static ArrayNode differences(JsonNode pairs) {
        ArrayNode found = Canonical.JSON.createArrayNode();
        for (JsonNode pair : pairs) {
            ObjectNode result = found.addObject();
            ArrayNode differences = result.putArray("differences");
            int rows = 0;
            try {
                Schema writer = AvroTypes.parsed(pair.get("writer").asText());
                Schema reader = AvroTypes.reader(pair.get("reader").asText());
                DataType type = AvroTypes.of(reader);
                AvroReader ours = new AvroReader(reader, type, writer);
                for (JsonNode payload : pair.get("payloads")) {
                    byte[] bytes = Base64.getDecoder().decode(payload.asText());
                    Object mine = ours(ours, bytes, type, reader);
                    Object theirs = theirs(bytes, writer, reader);
                    boolean same = mine instanceof String
                            ? theirs instanceof String
                            : !(theirs instanceof String) && mine.equals(theirs);
                    rows += mine instanceof String ? 0 : 1;
                    if (!same) {
                        differences.addObject()
                                .put("payload", payload.asText())
                                .put("ours", mine.toString())
                                .put("theirs", theirs.toString());
                    }
                }
            } catch (RuntimeException | StackOverflowError failed) {
                failed.printStackTrace();
                differences.addObject().put("ours", failed.toString());
            }
            result.put("rows", rows);
        }
        return found;
    }

    /** Returns a node of JSON, or the reason why there is none. */
    private static Object ours(AvroReader reader, byte[] bytes, DataType type, Schema schema) {
        InternalRow row = reader.read(bytes, null);
        if (!row.isNullAt(2)) {
            return row.getUTF8String(2).toString();
        }
        boolean wrapped = !(type instanceof StructType);
        StructType struct = wrapped ? new StructType().add("value", type) : (StructType) type;
        if (row.isNullAt(0)) {
            return Canonical.JSON.nullNode();
        }
        JsonNode value = Canonical.of(row.getStruct(0, struct.size()), struct);
        return parsedJson(wrapped ? value.get(0).get(1) : value, schema, Set.of());
    }

    private static Object theirs(byte[] bytes, Schema writer, Schema reader) {
        try {
            GenericDatumReader<Object> datumReader = new GenericDatumReader<>(writer, reader, new GenericData());
            Object datum = datumReader.read(null, DecoderFactory.get().binaryDecoder(bytes, null));
            return canonical(datum, reader, Set.of());
        } catch (IOException | RuntimeException refused) {
            return "Avro: " + refused;
        }
    }

    /** Parses the JSON inside recursive types, so that its numbers are compared as numbers. */
    private static JsonNode parsedJson(JsonNode value, Schema schema, Set<String> open) {
        if (value.isNull()) {
            return value;
        }
        switch (schema.getType()) {
            case RECORD -> {
                if (open.contains(schema.getFullName())) {
                    try {
                        return numbers(EXACT.readTree(value.asText()));
                    } catch (IOException invalid) {
                        throw new IllegalStateException(invalid);
                    }
                }
                Set<String> inside = AvroTypes.with(open, schema);
                ArrayNode fields = Canonical.JSON.createArrayNode();
                for (int at = 0; at < value.size(); at++) {
                    Schema field = schema.getFields().get(at).schema();
                    fields.addArray().add(value.get(at).get(0)).add(parsedJson(value.get(at).get(1), field, inside));
                }
                return fields;
            }
            case ARRAY -> {
                ArrayNode items = Canonical.JSON.createArrayNode();
                value.forEach(each -> items.add(parsedJson(each, schema.getElementType(), open)));
                return items;
            }
            case MAP -> {
                ObjectNode entries = Canonical.JSON.createObjectNode();
                value.fields().forEachRemaining(
                        each -> entries.set(each.getKey(), parsedJson(each.getValue(), schema.getValueType(), open)));
                return entries;
            }
            case UNION -> {
                List<Schema> types = AvroTypes.types(schema);
                if (AvroTypes.number(types) != null) {
                    return value;
                }
                if (types.size() == 1) {
                    return parsedJson(value, types.get(0), open);
                }
                ArrayNode members = Canonical.JSON.createArrayNode();
                for (int at = 0; at < types.size(); at++) {
                    members.addArray().add(value.get(at).get(0)).add(parsedJson(value.get(at).get(1), types.get(at), open));
                }
                return members;
            }
            default -> {
                return value;
            }
        }
    }

    private static JsonNode numbers(JsonNode tree) {
        if (tree.isNumber()) {
            return number(tree.decimalValue());
        }
        if (tree instanceof ArrayNode array) {
            ArrayNode items = Canonical.JSON.createArrayNode();
            array.forEach(each -> items.add(numbers(each)));
            return items;
        }
        if (tree instanceof ObjectNode object) {
            ObjectNode entries = Canonical.JSON.createObjectNode();
            object.fields().forEachRemaining(each -> entries.set(each.getKey(), numbers(each.getValue())));
            return entries;
        }
        return tree;
    }

    private static JsonNode number(BigDecimal value) {
        return DecimalNode.valueOf(value.signum() == 0 ? BigDecimal.ZERO : value.stripTrailingZeros());
    }

    private static JsonNode text(Object value) {
        return Canonical.JSON.getNodeFactory().textNode(value.toString());
    }

    private static JsonNode canonical(Object datum, Schema schema, Set<String> open) {
        if (schema.getType() == Schema.Type.UNION) {
            if (datum == null) {
                return Canonical.JSON.nullNode();
            }
            List<Schema> types = AvroTypes.types(schema);
            DataType number = AvroTypes.number(types);
            if (number != null) {
                return text(number.simpleString().equals("bigint") ? (Object) ((Number) datum).longValue() : ((Number) datum).doubleValue());
            }
            Schema branch = branch(datum, schema);
            if (types.size() == 1) {
                return canonical(datum, branch, open);
            }
            ArrayNode members = Canonical.JSON.createArrayNode();
            for (int at = 0; at < types.size(); at++) {
                JsonNode member = types.get(at) == branch ? canonical(datum, branch, open) : Canonical.JSON.nullNode();
                members.addArray().add("member" + at).add(member);
            }
            return members;
        }
        return switch (schema.getType()) {
            case NULL -> Canonical.JSON.nullNode();
            case RECORD -> {
                if (open.contains(schema.getFullName())) {
                    yield json(datum, schema);
                }
                Set<String> inside = AvroTypes.with(open, schema);
                ArrayNode fields = Canonical.JSON.createArrayNode();
                for (Schema.Field field : schema.getFields()) {
                    Object value = ((IndexedRecord) datum).get(field.pos());
                    fields.addArray().add(field.name()).add(canonical(value, field.schema(), inside));
                }
                yield fields;
            }
            case ARRAY -> {
                ArrayNode items = Canonical.JSON.createArrayNode();
                ((Collection<?>) datum).forEach(each -> items.add(canonical(each, schema.getElementType(), open)));
                yield items;
            }
            case MAP -> {
                TreeMap<String, JsonNode> sorted = new TreeMap<>();
                ((Map<?, ?>) datum).forEach((key, value) -> sorted.put(key.toString(), canonical(value, schema.getValueType(), open)));
                ObjectNode entries = Canonical.JSON.createObjectNode();
                sorted.forEach(entries::set);
                yield entries;
            }
            case BYTES, FIXED -> {
                byte[] bytes = bytes(datum);
                yield text(decimal(schema) ? decimalOf(schema, bytes) : HexFormat.of().formatHex(bytes));
            }
            case LONG -> text(micros((Long) datum, schema));
            default -> text(datum);
        };
    }

    private static Schema branch(Object datum, Schema union) {
        return union.getTypes().get(GenericData.get().resolveUnion(union, datum));
    }

    private static boolean decimal(Schema schema) {
        return schema.getLogicalType() instanceof LogicalTypes.Decimal;
    }

    private static BigDecimal decimalOf(Schema schema, byte[] bytes) {
        LogicalTypes.Decimal type = (LogicalTypes.Decimal) schema.getLogicalType();
        BigDecimal decimal = new BigDecimal(new BigInteger(bytes), type.getScale());
        if (decimal.precision() > type.getPrecision()) {
            throw new ArithmeticException("more digits than the type has");
        }
        return decimal;
    }

    private static byte[] bytes(Object datum) {
        if (datum instanceof GenericFixed fixed) {
            return fixed.bytes();
        }
        ByteBuffer buffer = ((ByteBuffer) datum).duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static long micros(long value, Schema schema) {
        String logical = schema.getLogicalType() == null ? "" : schema.getLogicalType().getName();
        return logical.endsWith("timestamp-millis") ? Math.multiplyExact(value, 1_000L) : value;
    }

    /** Returns the JSON form of a value inside a recursive type. */
    private static JsonNode json(Object datum, Schema schema) {
        if (schema.getType() == Schema.Type.UNION) {
            if (datum == null) {
                return Canonical.JSON.nullNode();
            }
            List<Schema> types = AvroTypes.types(schema);
            Schema branch = branch(datum, schema);
            JsonNode value = json(datum, branch);
            if (AvroTypes.number(types) != null || types.size() == 1) {
                return value;
            }
            return Canonical.JSON.createObjectNode().set("member" + types.indexOf(branch), value);
        }
        String logical = schema.getLogicalType() == null ? "" : schema.getLogicalType().getName();
        return switch (schema.getType()) {
            case NULL -> Canonical.JSON.nullNode();
            case RECORD -> {
                ObjectNode fields = Canonical.JSON.createObjectNode();
                for (Schema.Field field : schema.getFields()) {
                    fields.set(field.name(), json(((IndexedRecord) datum).get(field.pos()), field.schema()));
                }
                yield fields;
            }
            case ARRAY -> {
                ArrayNode items = Canonical.JSON.createArrayNode();
                ((Collection<?>) datum).forEach(each -> items.add(json(each, schema.getElementType())));
                yield items;
            }
            case MAP -> {
                ObjectNode entries = Canonical.JSON.createObjectNode();
                ((Map<?, ?>) datum).forEach((key, value) -> entries.set(key.toString(), json(value, schema.getValueType())));
                yield entries;
            }
            case BYTES, FIXED -> decimal(schema)
                    ? number(decimalOf(schema, bytes(datum)))
                    : text(Base64.getEncoder().encodeToString(bytes(datum)));
            case INT -> logical.equals("date")
                    ? text(LocalDate.ofEpochDay((Integer) datum))
                    : number(BigDecimal.valueOf((Integer) datum));
            case LONG -> {
                Instant moment = Instant.EPOCH.plus(micros((Long) datum, schema), ChronoUnit.MICROS);
                boolean seen = logical.endsWith("timestamp-millis") || logical.endsWith("timestamp-micros");
                if (seen) {
                    yield text(logical.startsWith("local")
                            ? DateTimeFormatter.ISO_LOCAL_DATE_TIME.format(moment.atOffset(ZoneOffset.UTC))
                            : DateTimeFormatter.ISO_INSTANT.format(moment));
                }
                yield number(BigDecimal.valueOf((Long) datum));
            }
            case FLOAT, DOUBLE -> {
                String shown = datum.toString();
                yield shown.endsWith("N") || shown.endsWith("y") ? text(shown) : number(new BigDecimal(shown));
            }
            case BOOLEAN -> Canonical.JSON.getNodeFactory().booleanNode((Boolean) datum);
            default -> text(datum);
        };
    }
}
