package io.lakefeed.parquet;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.parquet.ParquetUtil;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.HeapByteBufferAllocator;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.column.ParquetProperties;
import org.apache.iceberg.shaded.org.apache.parquet.compression.CompressionCodecFactory.BytesInputCompressor;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ColumnChunkPageWriteStore;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.iceberg.shaded.org.apache.parquet.io.OutputFile;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Appends rows to a Parquet file, as Iceberg's own appender does, but encodes each page of a column in one step.
 *
 * <p>parquet-java writes pages, row groups, indexes and the footer; Iceberg reads the metrics from the footer.
 */
final class ColumnarAppender implements FileAppender<InternalRow> {
    /** Key in a file's footer, which shows that this appender has written the file. */
    private static final String ENCODER = "lakefeed.encoder";

    private final OutputFile file;
    private final MessageType schema;
    /** The columns of the rows; a nested column can have several of the file's {@link #columns}. */
    private final Column[] roots;

    private final PageBuffer[] columns;
    private final RowGroups rowGroups;
    private final BytesInputCompressor compressor;
    private final Map<String, String> metadata;
    private final MetricsConfig metricsConfig;

    private ColumnChunkPageWriteStore pages;
    private ParquetFileWriter writer;
    private long rows;
    private long nextCheck;
    private boolean closed;

    /**
     * The rule for the end of a row group.
     *
     * @param bytes the size of a full row group
     * @param fewest the fewest rows before the size is checked again
     * @param most the most rows before the size is checked again
     */
    record RowGroups(long bytes, int fewest, int most) {}

    ColumnarAppender(
            OutputFile file,
            MessageType schema,
            Columns columns,
            RowGroups rowGroups,
            BytesInputCompressor compressor,
            Map<String, String> metadata,
            MetricsConfig metricsConfig) {
        this.file = file;
        this.schema = schema;
        this.roots = columns.roots();
        this.columns = columns.leaves();
        this.rowGroups = rowGroups;
        this.compressor = compressor;
        this.metadata = new HashMap<>(metadata);
        this.metadata.put(ENCODER, "columns");
        this.metricsConfig = metricsConfig;
        startRowGroup();
    }

    private void startRowGroup() {
        pages = new ColumnChunkPageWriteStore(
                compressor,
                schema,
                new HeapByteBufferAllocator(),
                ParquetProperties.DEFAULT_COLUMN_INDEX_TRUNCATE_LENGTH,
                ParquetProperties.DEFAULT_PAGE_WRITE_CHECKSUM_ENABLED);
        List<ColumnDescriptor> descriptors = schema.getColumns();
        for (int at = 0; at < columns.length; at++) {
            columns[at].start(pages.getPageWriter(descriptors.get(at)));
        }
        rows = 0;
        nextCheck = rowGroups.fewest();
    }

    @Override
    public void add(InternalRow row) {
        try {
            for (int at = 0; at < roots.length; at++) {
                // The cast lets HotSpot call methods of flat columns directly, although other files may nest columns.
                if (roots[at] instanceof PageBuffer flat) {
                    flat.write(row, at, 0);
                    flat.endRow();
                } else {
                    roots[at].write(row, at, 0);
                    roots[at].endRow();
                }
            }
            if (++rows >= nextCheck) {
                endFullRowGroup();
            }
        } catch (IOException failed) {
            throw new UncheckedIOException("the Parquet file " + file.getPath() + " cannot be written", failed);
        }
    }

    /** Ends the row group if it is full; otherwise sets the next check after half of the rows that still fit. */
    private void endFullRowGroup() throws IOException {
        long size = bufferedBytes();
        long ofRow = Math.max(1, size / rows);
        if (size > rowGroups.bytes() - 2 * ofRow) {
            endRowGroup();
            startRowGroup();
            return;
        }
        long half = (rowGroups.bytes() - size) / ofRow / 2;
        nextCheck = rows + Math.min(Math.max(half, rowGroups.fewest()), rowGroups.most());
    }

    private long bufferedBytes() {
        long sum = 0;
        for (PageBuffer column : columns) {
            sum += column.bufferedBytes();
        }
        return sum;
    }

    private void endRowGroup() throws IOException {
        if (rows > 0) {
            open();
            for (PageBuffer column : columns) {
                column.endChunk();
            }
            writer.startBlock(rows);
            pages.flushToFileWriter(writer);
            writer.endBlock();
        }
        pages.close();
    }

    /** Creates the file before the first row group; without rows, there is no file. */
    void open() throws IOException {
        if (writer != null) {
            return;
        }
        writer = new ParquetFileWriter(
                file,
                schema,
                ParquetFileWriter.Mode.OVERWRITE,
                rowGroups.bytes(),
                0,
                ParquetProperties.DEFAULT_COLUMN_INDEX_TRUNCATE_LENGTH,
                ParquetProperties.DEFAULT_STATISTICS_TRUNCATE_LENGTH,
                ParquetProperties.DEFAULT_PAGE_WRITE_CHECKSUM_ENABLED);
        writer.start();
    }

    /** Returns the length of the file, which is exact only when the file is closed. */
    @Override
    public long length() {
        try {
            long written = writer == null ? 0 : writer.getPos();
            return closed || rows == 0 ? written : written + bufferedBytes();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    @Override
    public Metrics metrics() {
        if (!closed) {
            throw new IllegalStateException("the file " + file.getPath() + " has no metrics before it is closed");
        }
        if (writer == null) {
            return new Metrics(0L, null, null, null, null);
        }
        return ParquetUtil.footerMetrics(
                writer.getFooter(),
                Stream.of(columns).map(PageBuffer::metrics).filter(Objects::nonNull),
                metricsConfig);
    }

    @Override
    public List<Long> splitOffsets() {
        return writer == null ? null : ParquetUtil.getSplitOffsets(writer.getFooter());
    }

    @Override
    public void close() throws IOException {
        if (closed) {
            return;
        }
        closed = true;
        try {
            endRowGroup();
            if (writer != null) {
                writer.end(metadata);
            }
        } finally {
            compressor.release();
        }
    }
}
