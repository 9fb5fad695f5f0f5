package io.lakefeed.parquet;

import io.lakefeed.parquet.Nested.Part;
import io.lakefeed.parquet.PageBuffer.Limits;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.schema.GroupType;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.ListLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.MapLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.iceberg.shaded.org.apache.parquet.schema.Type;
import org.apache.iceberg.shaded.org.apache.parquet.schema.Type.Repetition;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/** The columns of one file: a tree for each column of the rows; its leaves are the file's columns. */
final class Columns {
    private final Iterator<ColumnDescriptor> descriptors;
    private final Limits limits;
    private final Column[] roots;
    private final List<PageBuffer> leaves = new ArrayList<>();

    Columns(MessageType schema, StructType rows, Limits limits) {
        this.descriptors = schema.getColumns().iterator();
        this.limits = limits;
        this.roots = columns(schema, rows, 0, 0);
    }

    Column[] roots() {
        return roots;
    }

    PageBuffer[] leaves() {
        return leaves.toArray(PageBuffer[]::new);
    }

    private Column[] columns(GroupType group, StructType rows, int definition, int repetition) {
        Column[] found = new Column[rows.size()];
        for (int at = 0; at < found.length; at++) {
            found[at] = column(group.getType(at), rows.apply(at).dataType(), definition, repetition);
        }
        return found;
    }

    private Column column(Type type, DataType rows, int above, int repetition) {
        if (type.isPrimitive()) {
            return leaf(descriptors.next(), rows);
        }
        GroupType group = type.asGroupType();
        boolean optional = type.isRepetition(Repetition.OPTIONAL);
        int definition = optional ? above + 1 : above;
        Part part = new Part(type.getName(), optional, definition, repetition);
        if (rows instanceof StructType struct) {
            return Nested.struct(part, columns(group, struct, definition, repetition));
        }
        GroupType repeated = group.getType(0).asGroupType();
        if (rows instanceof ArrayType array) {
            return Nested.array(part, column(repeated.getType(0), array.elementType(), definition + 1, repetition + 1));
        }
        MapType map = (MapType) rows;
        Column key = column(repeated.getType(0), map.keyType(), definition + 1, repetition + 1);
        return Nested.map(part, key, column(repeated.getType(1), map.valueType(), definition + 1, repetition + 1));
    }

    private PageBuffer leaf(ColumnDescriptor column, DataType rows) {
        ValueKind kind = ValueKind.of(column.getPrimitiveType(), rows);
        PageBuffer buffer = switch (kind) {
            case TEXT, BYTES, UUID, LONG_DECIMAL, INT96 -> new BytesBuffer(column, limits, kind);
            default -> new FixedBuffer(column, limits, kind);
        };
        leaves.add(buffer);
        return buffer;
    }

    /** Returns why {@link ColumnarAppender} cannot write these rows into these files; null if it can. */
    static String refusal(MessageType schema, StructType rows) {
        if (schema.getFieldCount() != rows.size() || rows.isEmpty()) {
            return "the rows have other columns than the table";
        }
        Set<List<String>> paths = new HashSet<>();
        for (ColumnDescriptor column : schema.getColumns()) {
            if (!paths.add(List.of(column.getPath()))) {
                return "two columns have the name " + String.join(".", column.getPath()) + " in Parquet";
            }
        }
        return ofFields("", schema, rows);
    }

    private static String ofFields(String prefix, GroupType group, StructType rows) {
        for (int at = 0; at < rows.size(); at++) {
            String found = refusal(prefix + rows.apply(at).name(), group.getType(at), rows.apply(at).dataType());
            if (found != null) {
                return found;
            }
        }
        return null;
    }

    private static String refusal(String name, Type type, DataType rows) {
        if (type.isPrimitive()) {
            return ValueKind.of(type.asPrimitiveType(), rows) == null ? refused(name, rows) : null;
        }
        GroupType group = type.asGroupType();
        if (rows instanceof StructType struct) {
            boolean same = group.getLogicalTypeAnnotation() == null && group.getFieldCount() == struct.size();
            return same && !struct.isEmpty() ? ofFields(name + ".", group, struct) : refused(name, rows);
        }
        if (rows instanceof ArrayType array && isRepeated(group, 1, ListLogicalTypeAnnotation.class)) {
            return refusal(name + ".element", group.getType(0).asGroupType().getType(0), array.elementType());
        }
        if (rows instanceof MapType map && isRepeated(group, 2, MapLogicalTypeAnnotation.class)) {
            GroupType pair = group.getType(0).asGroupType();
            String found = refusal(name + ".key", pair.getType(0), map.keyType());
            return found != null ? found : refusal(name + ".value", pair.getType(1), map.valueType());
        }
        return refused(name, rows);
    }

    /** Returns whether a group has the three levels of a list or a map; Spark's legacy format has two. */
    private static boolean isRepeated(GroupType group, int fields, Class<?> annotation) {
        return annotation.isInstance(group.getLogicalTypeAnnotation())
                && group.getFieldCount() == 1
                && group.getType(0).isRepetition(Repetition.REPEATED)
                && !group.getType(0).isPrimitive()
                && group.getType(0).asGroupType().getFieldCount() == fields
                && group.getType(0).asGroupType().getFields().stream()
                        .noneMatch(each -> each.isRepetition(Repetition.REPEATED));
    }

    private static String refused(String name, DataType rows) {
        return "the column " + name + " is of type " + rows.simpleString();
    }
}
