package io.lakefeed.upkeep;

import java.time.DateTimeException;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.UnboundTerm;
import org.apache.iceberg.transforms.Transform;
import org.apache.iceberg.transforms.UnknownTransform;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;

/** Builds the condition that selects the files of one partition. */
public final class PartitionFilter {
    private static final Pattern NUMBER = Pattern.compile("-?[0-9]+");

    private PartitionFilter() {}

    /**
     * Returns the condition for one partition. If a value cannot be parsed, the condition also selects files of other
     * partitions.
     *
     * @param values the values of the spec's fields, as text; null for a null value
     */
    public static Expression of(Table table, int specId, List<String> values) {
        PartitionSpec spec = table.specs().get(specId);
        Expression all = Expressions.alwaysTrue();
        for (int position = 0; position < spec.fields().size(); position++) {
            PartitionField field = spec.fields().get(position);
            String column = table.schema().findColumnName(field.sourceId());
            boolean isKnown = !field.transform().isVoid() && !(field.transform() instanceof UnknownTransform);
            if (column != null && isKnown) {
                Type type = spec.partitionType().fields().get(position).type();
                all = Expressions.and(all, of(field, column, type, values.get(position)));
            }
        }
        return all;
    }

    private static Expression of(PartitionField field, String column, Type type, String value) {
        if (value == null) {
            return Expressions.isNull(column);
        }
        try {
            return Expressions.equal(term(field.transform(), column), parsed(type, value));
        } catch (UnsupportedOperationException | IllegalArgumentException | DateTimeException notComparable) {
            return Expressions.alwaysTrue();
        }
    }

    /** Parses a value. Days and microseconds come as numbers, which Iceberg's own parser does not accept. */
    private static Object parsed(Type type, String value) {
        boolean isNumber = NUMBER.matcher(value).matches();
        return switch (type.typeId()) {
            case DATE -> isNumber ? Integer.valueOf(value) : Conversions.fromPartitionString(type, value);
            case TIME, TIMESTAMP -> isNumber ? Long.valueOf(value) : Conversions.fromPartitionString(type, value);
            default -> Conversions.fromPartitionString(type, value);
        };
    }

    @SuppressWarnings("unchecked")
    private static <T> UnboundTerm<T> term(Transform<?, ?> transform, String column) {
        return transform.isIdentity()
                ? Expressions.ref(column)
                : Expressions.transform(column, (Transform<?, T>) transform);
    }
}
