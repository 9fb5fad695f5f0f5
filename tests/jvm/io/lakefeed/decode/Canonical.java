package io.lakefeed.decode;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HexFormat;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/**
 * Converts Spark's internal values to JSON, equal values to equal JSON: structs become lists of pairs of name and value,
 * maps become sorted objects, bytes become hexadecimal text, numbers become text.
 */
final class Canonical {
    static final ObjectMapper JSON = new ObjectMapper();

    private Canonical() {}

    static JsonNode of(Object value, DataType type) {
        if (value == null) {
            return JSON.nullNode();
        }
        if (type instanceof StructType struct) {
            InternalRow row = (InternalRow) value;
            ArrayNode fields = JSON.createArrayNode();
            for (int at = 0; at < struct.size(); at++) {
                DataType each = struct.apply(at).dataType();
                JsonNode field = row.isNullAt(at) ? JSON.nullNode() : of(row.get(at, each), each);
                fields.addArray().add(struct.apply(at).name()).add(field);
            }
            return fields;
        }
        if (type instanceof ArrayType array) {
            return items((ArrayData) value, array.elementType());
        }
        if (type instanceof MapType map) {
            ArrayData keys = ((MapData) value).keyArray();
            JsonNode values = items(((MapData) value).valueArray(), map.valueType());
            TreeMap<String, JsonNode> sorted = new TreeMap<>();
            for (int at = 0; at < keys.numElements(); at++) {
                sorted.put(keys.getUTF8String(at).toString(), values.get(at));
            }
            ObjectNode entries = JSON.createObjectNode();
            sorted.forEach(entries::set);
            return entries;
        }
        return JSON.getNodeFactory()
                .textNode(type instanceof BinaryType ? HexFormat.of().formatHex((byte[]) value) : value.toString());
    }

    private static ArrayNode items(ArrayData values, DataType type) {
        ArrayNode items = JSON.createArrayNode();
        for (int at = 0; at < values.numElements(); at++) {
            items.add(values.isNullAt(at) ? JSON.nullNode() : of(values.get(at, type), type));
        }
        return items;
    }
}
