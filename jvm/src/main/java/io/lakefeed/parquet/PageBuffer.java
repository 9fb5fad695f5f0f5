package io.lakefeed.parquet;

import java.io.IOException;
import java.util.Arrays;
import org.apache.iceberg.FieldMetrics;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesInput;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.column.Encoding;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.DictionaryPage;
import org.apache.iceberg.shaded.org.apache.parquet.column.page.PageWriter;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.Statistics;
import org.apache.iceberg.shaded.org.apache.parquet.schema.PrimitiveType;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Buffers the values of one column and encodes a page of them at once.
 *
 * <p>Pages are version 1, as Iceberg writes them by default: levels, then values, plain or as indices of a dictionary. A
 * column chunk begins with a dictionary, and drops it for good when its first page is not smaller with it, or when it is
 * full: parquet-java decides so too.
 */
@SuppressWarnings("deprecation") // The names of encodings in pages of version 1.
abstract class PageBuffer {
    private static final byte[] NO_LEVELS = {};

    final PrimitiveType type;
    /** The position of the column in the rows. */
    final int field;

    final Limits limits;

    /** The number of values in the page; nulls are not among them. */
    int count;

    /** The number of nulls in all pages. */
    long nullsOfFile;

    /** The indices of the page's values in the dictionary. */
    int[] indices = new int[0];

    private final boolean optional;
    private PageWriter pages;
    private int rows;
    private int nulls;
    private int[] levels = new int[0];
    private boolean usesDictionary;
    private boolean isFirstPage;
    /** Whether the dictionary has to be in the file. */
    private boolean hasIndexedPages;

    private byte[] scratch = new byte[0];

    /**
     * The sizes at which a page ends and a dictionary is full.
     *
     * @param pageBytes of values before they are compressed
     * @param pageRows the most rows of a page
     * @param dictionaryBytes the most bytes of a dictionary
     */
    record Limits(int pageBytes, int pageRows, int dictionaryBytes) {}

    PageBuffer(ColumnDescriptor column, int field, Limits limits) {
        this.type = column.getPrimitiveType();
        this.field = field;
        this.limits = limits;
        this.optional = column.getMaxDefinitionLevel() > 0;
    }

    /** Starts a column chunk, whose pages go to {@code pages}. */
    final void start(PageWriter pages) {
        this.pages = pages;
        usesDictionary = hasDictionary();
        isFirstPage = true;
        clearDictionary();
    }

    /** Adds the value of a row. */
    final void append(InternalRow row) throws IOException {
        if (row.isNullAt(field)) {
            appendNull();
        } else {
            put(row);
            count++;
        }
        if (++rows >= limits.pageRows() || plainBytes() >= limits.pageBytes()) {
            endPage();
        }
    }

    private void appendNull() {
        if (!optional) {
            throw new IllegalArgumentException("the column " + type.getName() + " is required, and a row has null");
        }
        if (nulls == 0) {
            // Levels exist only for pages with nulls; all rows so far have a value.
            levels = levels.length < limits.pageRows() ? new int[limits.pageRows()] : levels;
            Arrays.fill(levels, 1);
        }
        levels[rows] = 0;
        nulls++;
    }

    /** Encodes the rows so far as a page. */
    final void endPage() throws IOException {
        if (rows == 0) {
            return;
        }
        Statistics<?> statistics = Statistics.createStats(type);
        statistics.incrementNumNulls(nulls);
        boolean indexed = false;
        if (count > 0) {
            indexed = usesDictionary && index();
            if (isFirstPage && indexed) {
                indexed = dictionaryBytes() + indexedValues().size() < plainBytes();
            }
            usesDictionary = indexed;
            isFirstPage = false;
            addStatistics(statistics, indexed);
        }
        BytesInput values = indexed ? indexedValues() : plainValues();
        pages.writePage(
                BytesInput.concat(levels(), values),
                rows,
                rows,
                statistics,
                Encoding.BIT_PACKED,
                optional ? Encoding.RLE : Encoding.BIT_PACKED,
                indexed ? Encoding.PLAIN_DICTIONARY : plainEncoding());
        hasIndexedPages |= indexed;
        nullsOfFile += nulls;
        rows = 0;
        nulls = 0;
        count = 0;
        clearValues();
    }

    /** Ends the column chunk: its last page, and its dictionary if a page needs it. */
    final void endChunk() throws IOException {
        endPage();
        if (hasIndexedPages) {
            pages.writeDictionaryPage(
                    new DictionaryPage(dictionary(), dictionarySize(), Encoding.PLAIN_DICTIONARY));
        }
        hasIndexedPages = false;
    }

    /** Returns the bytes that the column chunk takes so far. */
    final long bufferedBytes() {
        return pages.getMemSize() + plainBytes() + (hasIndexedPages ? dictionaryBytes() : 0);
    }

    /** Returns the definition levels of the page: one for each row, 1 for a value and 0 for null. */
    private BytesInput levels() {
        if (!optional) {
            return BytesInput.from(NO_LEVELS);
        }
        byte[] encoded = new byte[4 + (nulls == 0 ? 6 : RunLengths.mostBytes(rows, 1))];
        int end = nulls == 0
                ? RunLengths.run(rows, 1, 1, encoded, 4)
                : RunLengths.write(levels, rows, 1, encoded, 4);
        int length = end - 4;
        for (int at = 0; at < 4; at++) {
            encoded[at] = (byte) (length >>> 8 * at);
        }
        return BytesInput.from(encoded, 0, end);
    }

    private BytesInput indexedValues() {
        int width = 32 - Integer.numberOfLeadingZeros(Math.max(0, dictionarySize() - 1));
        int most = 1 + RunLengths.mostBytes(count, width);
        scratch = scratch.length < most ? new byte[most] : scratch;
        scratch[0] = (byte) width;
        return BytesInput.from(scratch, 0, RunLengths.write(indices, count, width, scratch, 1));
    }

    final void roomForIndices() {
        indices = indices.length < count ? new int[Math.max(count, limits.pageRows())] : indices;
    }

    /** Returns whether this kind of column can have a dictionary. */
    boolean hasDictionary() {
        return true;
    }

    Encoding plainEncoding() {
        return Encoding.PLAIN;
    }

    /** Stores the value of a row, which is not null. */
    abstract void put(InternalRow row);

    /** Returns the bytes of the page's values in the plain encoding. */
    abstract long plainBytes();

    abstract BytesInput plainValues();

    abstract void clearValues();

    /** Finds the page's values in the dictionary, or adds them; returns whether it has them all. */
    abstract boolean index();

    abstract void clearDictionary();

    abstract long dictionaryBytes();

    abstract int dictionarySize();

    abstract BytesInput dictionary();

    abstract void addStatistics(Statistics<?> statistics, boolean indexed);

    /** Returns the metrics of the file that its footer does not have; null if there are none. */
    FieldMetrics<?> metrics() {
        return null;
    }
}
