package io.lakefeed.decode;

import io.lakefeed.decode.RecordReader.Writers;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.UUID;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

/**
 * Reads AWS Glue's framing: a byte 3, a byte for the compression (0 for none, 5 for zlib), the 16 bytes of the id of the
 * schema's version, then the data. Each call overwrites the result of the last call.
 *
 * @see <a href="https://github.com/awslabs/aws-glue-schema-registry">AWS's serializers</a>
 */
final class GlueFrame {
    private static final int HEADER = 18;
    private static final byte MAGIC = 3;
    private static final byte ZLIB = 5;

    private final Writers<?> writers;
    private UUID lastVersion;
    private int id;
    private byte[] data;
    private int from;

    GlueFrame(Writers<?> writers) {
        this.writers = writers;
    }

    /**
     * Reads a record's frame.
     *
     * @throws BadRecord if the record has no such frame, the registry does not have the schema, or the data would take
     *     more memory than a record may take
     */
    void read(byte[] record) {
        if (record[0] != MAGIC) {
            throw new BadRecord("wrong magic byte " + (record[0] & 0xFF) + " instead of 3: not in AWS Glue's framing");
        }
        if (record.length < HEADER) {
            throw new BadRecord("truncated: " + record.length + " bytes, a header alone has " + HEADER);
        }
        if (record[1] != 0 && record[1] != ZLIB) {
            throw new BadRecord("compression byte " + (record[1] & 0xFF) + " instead of 0 (none) or 5 (zlib)");
        }
        ByteBuffer header = ByteBuffer.wrap(record, 2, 16);
        UUID version = new UUID(header.getLong(), header.getLong());
        if (!version.equals(lastVersion)) {
            id = writers.id(SchemaReference.guid(version));
            lastVersion = version;
        }
        boolean zipped = record[1] == ZLIB;
        data = zipped ? inflated(record) : record;
        from = zipped ? 0 : HEADER;
    }

    int id() {
        return id;
    }

    byte[] data() {
        return data;
    }

    /** Returns the index of the first byte of the data in {@link #data}. */
    int from() {
        return from;
    }

    private static byte[] inflated(byte[] record) {
        long most = (long) record.length * MemoryBudget.TIMES + MemoryBudget.FREE;
        Inflater zlib = new Inflater();
        try {
            zlib.setInput(record, HEADER, record.length - HEADER);
            byte[] out = new byte[(int) Math.min(most, 8L * record.length)];
            int length = 0;
            while (true) {
                length += zlib.inflate(out, length, out.length - length);
                if (zlib.finished()) {
                    return Arrays.copyOf(out, length);
                }
                if (length < out.length) {
                    throw new BadRecord("the zlib data are cut short");
                }
                if (length >= most) {
                    throw new BadRecord("too large when decoded: zlib would take more than the " + most + " bytes that a record of "
                            + record.length + " bytes may take");
                }
                out = Arrays.copyOf(out, (int) Math.min(most, 2L * length));
            }
        } catch (DataFormatException garbage) {
            throw new BadRecord("the data are not zlib");
        } finally {
            zlib.end();
        }
    }
}
