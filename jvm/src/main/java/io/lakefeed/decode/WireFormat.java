package io.lakefeed.decode;

/**
 * Confluent's wire format: one zero byte, the schema's id as four bytes, big end first, then the data.
 *
 * @see <a href="https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format">
 *     the format's description</a>
 */
final class WireFormat {
    /** The length of the header; the data follow it. */
    static final int HEADER = 5;

    private static final byte MAGIC = 0;

    private WireFormat() {}

    /**
     * Returns the schema's id in a record's header.
     *
     * @throws BadRecord if the record has no such header
     */
    static int schemaId(byte[] record) {
        if (record[0] != MAGIC) {
            throw new BadRecord("wrong magic byte " + (record[0] & 0xFF) + " instead of 0: not in Confluent wire format");
        }
        if (record.length < HEADER) {
            throw new BadRecord("truncated: " + record.length + " bytes, a header alone has " + HEADER);
        }
        return (record[1] & 0xFF) << 24 | (record[2] & 0xFF) << 16 | (record[3] & 0xFF) << 8 | record[4] & 0xFF;
    }

    /** Returns a hint for the error of a value that is read without a header and begins like one with a header. */
    static String described(byte[] record) {
        boolean framed = record.length > HEADER && record[0] == MAGIC && schemaId(record) > 0;
        return framed ? "; it begins as values of a schema registry do, with schema id " + schemaId(record) : "";
    }
}
