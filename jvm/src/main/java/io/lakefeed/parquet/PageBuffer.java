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
import org.apache.iceberg.shaded.org.apache.parquet.schema.Type.Repetition;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;

/**
 * Buffers the values of one column and encodes a page of them at once.
 *
 * <p>Pages have version 1, Iceberg's default. A page has levels and then values, plain or as indexes into a dictionary.
 * A column chunk begins with a dictionary. Like parquet-java, this class drops the dictionary if it does not make the
 * first page smaller, or when it is full.
 */
@SuppressWarnings("deprecation") // parquet-java marks the encodings of pages of version 1 as deprecated.
abstract class PageBuffer implements Column {
    private static final byte[] NO_LEVELS = {};

    final PrimitiveType type;
    final Limits limits;

    /** The number of values in the page, not counting nulls. */
    int count;

    long nullsOfFile;

    /** The page's values as indexes into the dictionary. */
    int[] indices = new int[0];

    private final boolean optional;
    /** The definition level of a value that is not null. */
    private final int definition;
    /** The repetition level of all values of the innermost list but the first. */
    private final int repetition;
    private PageWriter pages;
    private int rows;
    private int nulls;
    /** The definition levels, used only if the page has nulls. */
    private int[] definitions = {};

    private int[] repetitions = {};
    private boolean usesDictionary;
    private boolean isFirstPage;
    /** Whether a page of the column chunk uses the dictionary. */
    private boolean hasIndexedPages;

    private byte[] scratch = new byte[0];

    /**
     * The sizes at which a page ends and a dictionary is full.
     *
     * @param pageBytes the size of a page's values before compression
     * @param pageRows the most rows of a page
     * @param dictionaryBytes the most bytes of a dictionary
     */
    record Limits(int pageBytes, int pageRows, int dictionaryBytes) {}

    PageBuffer(ColumnDescriptor column, Limits limits) {
        this.type = column.getPrimitiveType();
        this.limits = limits;
        this.optional = type.isRepetition(Repetition.OPTIONAL);
        this.definition = column.getMaxDefinitionLevel();
        this.repetition = column.getMaxRepetitionLevel();
    }

    /** Starts a column chunk, whose pages go to {@code pages}. */
    final void start(PageWriter pages) {
        this.pages = pages;
        usesDictionary = hasDictionary();
        isFirstPage = true;
        clearDictionary();
    }

    @Override
    public final void write(SpecializedGetters from, int at, int level) {
        if (!from.isNullAt(at)) {
            put(from, at);
            if (repetition > 0) {
                addLevel(level);
            }
            count++;
        } else if (optional) {
            absent(level, definition - 1);
        } else {
            throw new IllegalArgumentException("the column " + type.getName() + " is required, but a row has null");
        }
    }

    @Override
    public final void absent(int level, int defined) {
        roomForDefinition();
        definitions[count + nulls] = defined;
        if (repetition > 0) {
            addLevel(level);
        }
        nulls++;
    }

    private void addLevel(int level) {
        int at = count + nulls;
        repetitions = at < repetitions.length ? repetitions : Arrays.copyOf(repetitions, Math.max(64, at * 2));
        repetitions[at] = level;
        if (nulls > 0) {
            roomForDefinition();
        }
    }

    /** Makes room for one more definition level; levels that were left out so far get the level of a value. */
    private void roomForDefinition() {
        int length = definitions.length;
        if (count + nulls >= length) {
            definitions = Arrays.copyOf(definitions, roomFor(count + nulls + 1));
        }
        Arrays.fill(definitions, nulls == 0 ? 0 : Math.min(length, definitions.length), definitions.length, definition);
    }

    @Override
    public final void endRow() throws IOException {
        // Count a byte for each level, because a list can have very many values that take no bytes.
        long size = repetition > 0 ? plainBytes() + count + nulls : plainBytes();
        if (++rows >= limits.pageRows() || size >= limits.pageBytes()) {
            endPage();
        }
    }

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
        if (nulls > 0) {
            // The values after the last null have no level yet.
            roomForDefinition();
        }
        pages.writePage(
                BytesInput.concat(levels(repetitions, repetition, false), levels(definitions, definition, nulls == 0), values),
                count + nulls,
                rows,
                statistics,
                repetition > 0 ? Encoding.RLE : Encoding.BIT_PACKED,
                definition > 0 ? Encoding.RLE : Encoding.BIT_PACKED,
                indexed ? Encoding.PLAIN_DICTIONARY : Encoding.PLAIN);
        hasIndexedPages |= indexed;
        nullsOfFile += nulls;
        rows = 0;
        nulls = 0;
        count = 0;
        clearValues();
    }

    /** Writes the column chunk's last page, and its dictionary if a page needs it. */
    final void endChunk() throws IOException {
        endPage();
        if (hasIndexedPages) {
            pages.writeDictionaryPage(
                    new DictionaryPage(dictionary(), dictionarySize(), Encoding.PLAIN_DICTIONARY));
        }
        hasIndexedPages = false;
    }

    final long bufferedBytes() {
        return pages.getMemSize() + plainBytes() + (hasIndexedPages ? dictionaryBytes() : 0);
    }

    /** Encodes the page's levels; {@code same} means that all levels are {@code most}. */
    private BytesInput levels(int[] levels, int most, boolean same) {
        if (most == 0) {
            return BytesInput.from(NO_LEVELS);
        }
        int number = count + nulls;
        int width = bits(most);
        byte[] encoded = new byte[4 + RunLengths.mostBytes(same ? 1 : number, width)];
        int end = same
                ? RunLengths.run(number, most, width, encoded, 4)
                : RunLengths.write(levels, number, width, encoded, 4);
        int length = end - 4;
        for (int at = 0; at < 4; at++) {
            encoded[at] = (byte) (length >>> 8 * at);
        }
        return BytesInput.from(encoded, 0, end);
    }

    private static int bits(int most) {
        return 32 - Integer.numberOfLeadingZeros(most);
    }

    private BytesInput indexedValues() {
        int width = bits(Math.max(0, dictionarySize() - 1));
        int most = 1 + RunLengths.mostBytes(count, width);
        scratch = scratch.length < most ? new byte[most] : scratch;
        scratch[0] = (byte) width;
        return BytesInput.from(scratch, 0, RunLengths.write(indices, count, width, scratch, 1));
    }

    /** Returns twice the required length of an array, but no more than the rows of a page if that is enough. */
    private int roomFor(int entries) {
        int twice = Math.max(64, 2 * entries);
        return entries > limits.pageRows() ? twice : Math.min(twice, limits.pageRows());
    }

    final void roomForIndices() {
        indices = indices.length < count ? new int[roomFor(count)] : indices;
    }

    boolean hasDictionary() {
        return true;
    }

    abstract void put(SpecializedGetters from, int at);

    abstract long plainBytes();

    abstract BytesInput plainValues();

    abstract void clearValues();

    /** Sets {@link #indices}, and adds new values to the dictionary; returns false if the dictionary is full. */
    abstract boolean index();

    abstract void clearDictionary();

    abstract long dictionaryBytes();

    abstract int dictionarySize();

    abstract BytesInput dictionary();

    abstract void addStatistics(Statistics<?> statistics, boolean indexed);

    /** Returns the column's metrics that the file's footer lacks; null if there are none. */
    FieldMetrics<?> metrics() {
        return null;
    }

    /** Writes ints in Parquet's "RLE/Bit-Packing Hybrid": runs of equal values, and packed groups of eight. */
    static final class RunLengths {
        private static final int GROUP = 8;

        private RunLengths() {}

        /** Returns the most bytes that {@code count} values of {@code width} bits can take. */
        static int mostBytes(int count, int width) {
            int groups = (count + GROUP - 1) / GROUP;
            // A run takes at most nine bytes, five for its header and four for its value, and replaces a group or more.
            return groups * Math.max(width, 9) + 16;
        }

        /**
         * Writes the first {@code count} values.
         *
         * @param width the number of bits that the largest value needs
         * @return the index after the last byte
         */
        static int write(int[] values, int count, int width, byte[] into, int at) {
            int literals = 0;
            int next = 0;
            while (next < count) {
                int run = runLength(values, next, count);
                if (run >= GROUP) {
                    at = literals(values, literals, next, count, width, into, at);
                    at = run(run, values[next], width, into, at);
                    next += run;
                    literals = next;
                } else {
                    next = Math.min(next + GROUP, count);
                }
            }
            return literals(values, literals, next, count, width, into, at);
        }

        private static int runLength(int[] values, int from, int count) {
            int value = values[from];
            int next = from + 1;
            while (next < count && values[next] == value) {
                next++;
            }
            return next - from;
        }

        static int run(int length, int value, int width, byte[] into, int at) {
            at = unsigned(length << 1, into, at);
            for (int bits = 0; bits < width; bits += 8) {
                into[at++] = (byte) (value >>> bits);
            }
            return at;
        }

        private static int literals(int[] values, int from, int until, int count, int width, byte[] into, int at) {
            if (from == until) {
                return at;
            }
            int groups = (until - from + GROUP - 1) / GROUP;
            at = unsigned(groups << 1 | 1, into, at);
            int end = at + groups * width;
            long buffer = 0;
            int bits = 0;
            for (int next = from; next < until; next++) {
                buffer |= (long) values[next] << bits;
                bits += width;
                while (bits >= 8) {
                    into[at++] = (byte) buffer;
                    buffer >>>= 8;
                    bits -= 8;
                }
            }
            // Fill the last group up with zeros.
            while (at < end) {
                into[at++] = (byte) buffer;
                buffer >>>= 8;
            }
            return at;
        }

        private static int unsigned(int value, byte[] into, int at) {
            while ((value & ~0x7F) != 0) {
                into[at++] = (byte) (value | 0x80);
                value >>>= 7;
            }
            into[at++] = (byte) value;
            return at;
        }
    }
}
