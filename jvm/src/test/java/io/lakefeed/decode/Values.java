package io.lakefeed.decode;

import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/** Converts Spark's internal values to text. */
final class Values {
    private Values() {}

    /** Returns the value of a decoded record as text; for a record with an error, the error. */
    static String of(InternalRow result, DataType type) {
        return result.isNullAt(2) ? text(result.getStruct(0, 0), type) : "error: " + result.getUTF8String(2);
    }

    static String text(Object value, DataType type) {
        return String.valueOf(plain(value, type));
    }

    private static Object plain(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        if (type instanceof StructType struct) {
            List<Object> fields = new ArrayList<>();
            for (int at = 0; at < struct.size(); at++) {
                DataType field = struct.apply(at).dataType();
                fields.add(plain(((InternalRow) value).get(at, field), field));
            }
            return fields;
        }
        if (type instanceof ArrayType array) {
            return items((ArrayData) value, array.elementType());
        }
        if (type instanceof MapType map) {
            List<Object> keys = items(((MapData) value).keyArray(), map.keyType());
            List<Object> values = items(((MapData) value).valueArray(), map.valueType());
            TreeMap<String, Object> entries = new TreeMap<>();
            for (int at = 0; at < keys.size(); at++) {
                entries.put(String.valueOf(keys.get(at)), values.get(at));
            }
            return entries;
        }
        return value instanceof byte[] bytes ? "0x" + HexFormat.of().formatHex(bytes) : value;
    }

    private static List<Object> items(ArrayData array, DataType type) {
        List<Object> items = new ArrayList<>();
        for (int at = 0; at < array.numElements(); at++) {
            items.add(array.isNullAt(at) ? null : plain(array.get(at, type), type));
        }
        return items;
    }
}
