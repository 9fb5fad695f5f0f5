package io.lakefeed.decode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Reads values that are one line of CSV each (RFC 4180), in UTF-8, with or without a line end.
 *
 * <p>There must be as many values as columns, each of its column's type. Spark's {@code from_csv} returns null for
 * missing values; here they are an error.
 */
final class CsvReader extends RecordReader {
    private final StructField[] columns;
    private final TextValue[] values;
    private final Dialect dialect;
    private String line;
    private int at;

    /**
     * The dialect of the lines.
     *
     * @param escape before a quote in quotes; the quote itself if it is doubled
     * @param nullValue the text for null, outside quotes
     */
    record Dialect(char delimiter, char quote, char escape, String nullValue) {}

    CsvReader(StructType type, Dialect dialect, TextValue.Rules rules) {
        super(null);
        this.columns = type.fields();
        this.dialect = dialect;
        this.values = new TextValue[columns.length];
        for (int column = 0; column < columns.length; column++) {
            values[column] = TextValue.as(columns[column].dataType(), rules);
            if (values[column] == null) {
                throw new IllegalArgumentException("a value of CSV cannot become " + columns[column].dataType().simpleString()
                        + ", the type of column " + columns[column].name());
            }
        }
    }

    @Override
    InternalRow value(byte[] record, int from, int schemaId) {
        line = JsonReader.text(record, from);
        at = 0;
        Object[] row = new Object[columns.length];
        int column = 0;
        boolean more = true;
        while (more) {
            if (column < columns.length) {
                row[column] = next(column);
            } else {
                pass();
            }
            column++;
            more = at < line.length() && line.charAt(at) == dialect.delimiter;
            at += more ? 1 : 0;
        }
        if (at < line.length() && !(atLineEnd() && line.indexOf('\n', at) == line.length() - 1)) {
            throw new BadRecord("something follows the line after character " + at);
        }
        if (column != columns.length) {
            throw new BadRecord(column + " value(s) in the line, " + columns.length + " expected");
        }
        return new GenericInternalRow(row);
    }

    private Object next(int column) {
        boolean quoted = at < line.length() && line.charAt(at) == dialect.quote;
        int from = at;
        if (!quoted) {
            pass();
        }
        String text = quoted ? quoted() : line.substring(from, at);
        StructField field = columns[column];
        if (!quoted && text.equals(dialect.nullValue)) {
            if (!field.nullable()) {
                throw new BadRecord("missing or null").at(field.name());
            }
            return null;
        }
        boolean blanks = !(field.dataType() instanceof StringType);
        Object value = values[column].of(blanks ? text.strip() : text);
        if (value == null) {
            throw new BadRecord("expected " + field.dataType().simpleString() + ", found a text of another form").at(field.name());
        }
        return value;
    }

    private void pass() {
        if (at < line.length() && line.charAt(at) == dialect.quote) {
            quoted();
            return;
        }
        while (at < line.length() && line.charAt(at) != dialect.delimiter && !atLineEnd()) {
            at++;
        }
    }

    private boolean atLineEnd() {
        return line.startsWith("\n", at) || line.startsWith("\r\n", at);
    }

    private String quoted() {
        int opened = at;
        StringBuilder text = new StringBuilder();
        for (at++; at < line.length(); at++) {
            char c = line.charAt(at);
            boolean quoteNext = at + 1 < line.length() && line.charAt(at + 1) == dialect.quote;
            if (c == dialect.escape && quoteNext) {
                at++;
                text.append(dialect.quote);
            } else if (c == dialect.escape && c != dialect.quote && at + 1 < line.length() && line.charAt(at + 1) == c) {
                at++;
                text.append(c);
            } else if (c == dialect.quote) {
                at++;
                return text.toString();
            } else {
                text.append(c);
            }
        }
        throw new BadRecord("the quote at character " + opened + " is not closed");
    }
}
