package io.lakefeed.parquet;

import com.github.luben.zstd.ZstdCompressCtx;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesInput;
import org.apache.iceberg.shaded.org.apache.parquet.compression.CompressionCodecFactory.BytesInputCompressor;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.CompressionCodecName;

/** Compresses whole pages in one call. Parquet's own codec copies them through a stream, which it makes for each. */
final class Zstd implements BytesInputCompressor {
    private final ZstdCompressCtx context;
    private byte[] compressed = new byte[0];

    Zstd(int level) {
        context = new ZstdCompressCtx().setLevel(level);
    }

    @Override
    public BytesInput compress(BytesInput page) throws IOException {
        Plain plain = PLAIN.get();
        plain.end = 0;
        page.writeAllTo(plain);
        int most = Math.toIntExact(com.github.luben.zstd.Zstd.compressBound(plain.end));
        compressed = compressed.length < most ? new byte[most] : compressed;
        int length = context.compressByteArray(compressed, 0, compressed.length, plain.bytes, 0, plain.end);
        return BytesInput.from(compressed, 0, length);
    }

    @Override
    public CompressionCodecName getCodecName() {
        return CompressionCodecName.ZSTD;
    }

    @Override
    public void release() {
        context.close();
    }

    private static final ThreadLocal<Plain> PLAIN = ThreadLocal.withInitial(Plain::new);

    /** Collects the parts of a page. */
    private static final class Plain extends OutputStream {
        private byte[] bytes = new byte[1 << 16];
        private int end;

        @Override
        public void write(int value) {
            write(new byte[] {(byte) value}, 0, 1);
        }

        @Override
        public void write(byte[] from, int at, int length) {
            int required = Math.addExact(end, length);
            if (required > bytes.length) {
                bytes = Arrays.copyOf(bytes, Math.max(required, bytes.length * 2));
            }
            System.arraycopy(from, at, bytes, end, length);
            end = required;
        }
    }
}
