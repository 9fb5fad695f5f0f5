package io.lakefeed.parquet;

import java.io.IOException;
import org.apache.iceberg.shaded.org.apache.parquet.io.DelegatingPositionOutputStream;
import org.apache.iceberg.shaded.org.apache.parquet.io.OutputFile;
import org.apache.iceberg.shaded.org.apache.parquet.io.PositionOutputStream;

/** A file of a table's FileIO as parquet-java's. */
record TableOutput(org.apache.iceberg.io.OutputFile file) implements OutputFile {
    @Override
    public PositionOutputStream create(long blockSize) {
        return positioned(file.create());
    }

    @Override
    public PositionOutputStream createOrOverwrite(long blockSize) {
        return positioned(file.createOrOverwrite());
    }

    private static PositionOutputStream positioned(org.apache.iceberg.io.PositionOutputStream stream) {
        return new DelegatingPositionOutputStream(stream) {
            @Override
            public long getPos() throws IOException {
                return stream.getPos();
            }
        };
    }

    @Override
    public boolean supportsBlockSize() {
        return false;
    }

    @Override
    public long defaultBlockSize() {
        return 0;
    }

    @Override
    public String getPath() {
        return file.location();
    }
}
