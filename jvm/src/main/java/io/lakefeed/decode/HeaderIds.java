package io.lakefeed.decode;

import io.lakefeed.decode.RecordReader.Writers;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.UUID;

/**
 * Reads schemas' ids from record headers. Each reader has its own object, which remembers the last header.
 *
 * <p>Confluent's header has the bytes that would otherwise precede the data, or instead of the id a byte 1 and the 16
 * bytes of a GUID. Protobuf's message indexes follow. Apicurio's headers have a number of 8 bytes.
 */
final class HeaderIds {
    private static final int GUID_BYTES = 17;

    private final Writers<?> writers;
    private IdHeader lastHeader;
    private Named last;

    HeaderIds(Writers<?> writers) {
        this.writers = writers;
    }

    /**
     * A schema that a header names.
     *
     * @param id the schema's id in the registry
     * @param end the index after the id in the header's value
     */
    record Named(int id, IdHeader header, int end) {
        /** Returns the schema's id; refuses a header in which further bytes follow the id. */
        int only() {
            int rest = header.value().length - end;
            if (rest > 0) {
                throw new BadRecord(rest + " byte(s) left over in the header " + header.name());
            }
            return id;
        }
    }

    /**
     * Returns the schema that a record's headers name.
     *
     * @throws BadRecord if a header cannot be read, or the headers name different schemas
     */
    Named of(IdHeader[] headers) {
        Named first = named(headers[0]);
        for (int at = 1; at < headers.length; at++) {
            Named other = named(headers[at]);
            if (other.id != first.id) {
                throw new BadRecord("two headers contradict each other: " + first.header.name() + " names schema id "
                        + first.id + ", " + other.header.name() + " names schema id " + other.id);
            }
        }
        return first;
    }

    private Named named(IdHeader header) {
        if (lastHeader != null
                && lastHeader.name().equals(header.name())
                && Arrays.equals(lastHeader.value(), header.value())) {
            return last;
        }
        Named found = header.isConfluents() ? confluents(header) : apicurios(header);
        lastHeader = header;
        last = found;
        return found;
    }

    private Named confluents(IdHeader header) {
        byte[] value = header.value();
        ByteBuffer bytes = ByteBuffer.wrap(value);
        byte magic = value.length == 0 ? 0 : bytes.get();
        if (magic == 0 && value.length >= RecordReader.WireFormat.HEADER) {
            return new Named(bytes.getInt(), header, RecordReader.WireFormat.HEADER);
        }
        if (magic == 1 && value.length >= GUID_BYTES) {
            UUID guid = new UUID(bytes.getLong(), bytes.getLong());
            return new Named(writers.id(SchemaReference.guid(guid)), header, GUID_BYTES);
        }
        throw new BadRecord(
                magic == 0 || magic == 1
                        ? truncated(header, "a GUID has " + GUID_BYTES + ", an id 5")
                        : "wrong magic byte " + (magic & 0xFF) + " in the header " + header.name() + " instead of 0 or 1");
    }

    private Named apicurios(IdHeader header) {
        int length = header.value().length;
        if (length != Long.BYTES) {
            throw new BadRecord(truncated(header, "Apicurio's ids have 8"));
        }
        long number = ByteBuffer.wrap(header.value()).getLong();
        if (header.isGlobalId()) {
            return new Named(writers.id(SchemaReference.globalId(number)), header, length);
        }
        if (number != (int) number) {
            throw new BadRecord("unknown schema id " + number + ": ids have 4 bytes");
        }
        return new Named((int) number, header, length);
    }

    private static String truncated(IdHeader header, String expected) {
        return "the header " + header.name() + " has " + header.value().length + " bytes: " + expected;
    }
}
