package io.lakefeed.csv;

import io.lakefeed.decode.BadRecord;
import io.lakefeed.decode.RecordReader;
import io.lakefeed.decode.TextValue;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Reads records that are one line of CSV (RFC 4180) in UTF-8, with or without a line end.
 *
 * <p>A line must have a value for each column. A missing value is an error, whereas Spark's {@code from_csv} returns
 * null for it.
 *
 * <p>The options {@code delimiter}, {@code quote} and {@code escape} are one character each. Inside quotes, {@code
 * escape} precedes each quote; if quotes are doubled, {@code escape} is the quote itself. {@code null-value} is the
 * text that means null if it has no quotes.
 */
public final class CsvReader extends RecordReader {
    private final StructField[] columns;
    private final TextValue[] values;
    private final char delimiter;
    private final char quote;
    private final char escape;
    private final String nullValue;
    private String line;
    private int at;

    public CsvReader(StructType type, Map<String, String> options) {
        this.columns = type.fields();
        this.delimiter = options.get("delimiter").charAt(0);
        this.quote = options.get("quote").charAt(0);
        this.escape = options.get("escape").charAt(0);
        this.nullValue = options.get("null-value");
        TextValue.Rules rules = TextValue.Rules.of(options);
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
    protected InternalRow value(byte[] record, int from, int schemaId) {
        line = text(record, from);
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
            more = at < line.length() && line.charAt(at) == delimiter;
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
        boolean quoted = at < line.length() && line.charAt(at) == quote;
        int from = at;
        if (!quoted) {
            pass();
        }
        String text = quoted ? quoted() : line.substring(from, at);
        StructField field = columns[column];
        if (!quoted && text.equals(nullValue)) {
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
        if (at < line.length() && line.charAt(at) == quote) {
            quoted();
            return;
        }
        while (at < line.length() && line.charAt(at) != delimiter && !atLineEnd()) {
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
            boolean quoteNext = at + 1 < line.length() && line.charAt(at + 1) == quote;
            if (c == escape && quoteNext) {
                at++;
                text.append(quote);
            } else if (c == escape && c != quote && at + 1 < line.length() && line.charAt(at + 1) == c) {
                at++;
                text.append(c);
            } else if (c == quote) {
                at++;
                return text.toString();
            } else {
                text.append(c);
            }
        }
        throw new BadRecord("the quote at character " + opened + " is not closed");
    }
}
