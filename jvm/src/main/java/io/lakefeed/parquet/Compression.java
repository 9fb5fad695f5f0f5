package io.lakefeed.parquet;

import com.github.luben.zstd.ZstdCompressCtx;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.parquet.ParquetCodecFactory;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesInput;
import org.apache.iceberg.shaded.org.apache.parquet.compression.CompressionCodecFactory.BytesInputCompressor;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.CompressionCodecName;

/** Compresses pages: with zstd in one call, with other codecs like parquet-java. */
record Compression(CompressionCodecName codec, Optional<String> level) {
    /** zstd's level: parquet-java's default, 3, takes a fifth more time and makes no smaller files. */
    private static final String LEVEL = "1";

    private static final Set<CompressionCodecName> KNOWN = Set.of(
            CompressionCodecName.ZSTD,
            CompressionCodecName.SNAPPY,
            CompressionCodecName.GZIP,
            CompressionCodecName.LZ4_RAW,
            CompressionCodecName.UNCOMPRESSED);
    static final String GZIP_LEVEL = "zlib.compress.level";

    /** Returns the codec of this name; empty if this class does not support the codec. */
    static Optional<CompressionCodecName> named(String name) {
        return KNOWN.stream()
                .filter(each -> each.name().equals(name.toUpperCase(Locale.ROOT)))
                .findAny();
    }

    BytesInputCompressor compressor(int pageBytes) {
        if (codec == CompressionCodecName.ZSTD) {
            return new Zstd(Integer.parseInt(level.orElse(LEVEL)));
        }
        Configuration settings = new Configuration(false);
        level.ifPresent(given -> settings.set(GZIP_LEVEL, given));
        return new ParquetCodecFactory(settings, pageBytes).getCompressor(codec);
    }

    /** Compresses a page in one call; Parquet's codec would copy the page through a new stream. */
    static final class Zstd implements BytesInputCompressor {
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
}
