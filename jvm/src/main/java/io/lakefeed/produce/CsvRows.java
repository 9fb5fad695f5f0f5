package io.lakefeed.produce;

import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.hadoop.io.Text;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.csv.CSVHeaderChecker;
import org.apache.spark.sql.catalyst.csv.UnivocityParser;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rows of lines: by {@link CsvLine} where it reads a line, by Spark's parser elsewhere. A row is valid until the
 * next.
 */
final class CsvRows implements Iterator<InternalRow> {
    private final scala.collection.Iterator<Text> lines;
    private final CsvLine plain;
    private final UnivocityParser parser;
    private final CSVHeaderChecker noHeader;
    private final StructType columns;
    private final UnsafeProjection projection;
    private InternalRow next;

    CsvRows(
            scala.collection.Iterator<Text> lines,
            CsvLine plain,
            UnivocityParser parser,
            CSVHeaderChecker noHeader,
            StructType columns) {
        this.lines = lines;
        this.plain = plain;
        this.parser = parser;
        this.noHeader = noHeader;
        this.columns = columns;
        this.projection = UnsafeProjection$.MODULE$.create(columns);
    }

    /** Lines as texts. */
    record Texts(scala.collection.Iterator<Text> lines) implements Iterator<String> {
        @Override
        public boolean hasNext() {
            return lines.hasNext();
        }

        @Override
        public String next() {
            return text(lines.next());
        }
    }

    private static String text(Text line) {
        return new String(line.getBytes(), 0, line.getLength(), StandardCharsets.UTF_8);
    }

    @Override
    public boolean hasNext() {
        while (next == null && lines.hasNext()) {
            Text line = lines.next();
            next = plain.read(line.getBytes(), line.getLength());
            if (next == null) {
                next = bySpark(text(line));
            }
        }
        return next != null;
    }

    @Override
    public InternalRow next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        InternalRow row = next;
        next = null;
        return row;
    }

    /** Returns null for a line without a row: an empty one. */
    private InternalRow bySpark(String line) {
        scala.collection.Iterator<InternalRow> rows = UnivocityParser.parseIterator(
                CollectionConverters.asScala(java.util.List.of(line).iterator()), parser, noHeader, columns);
        return rows.hasNext() ? projection.apply(rows.next()) : null;
    }
}
