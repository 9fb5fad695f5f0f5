package io.lakefeed.decode;

import io.lakefeed.protobuf.WireInput;

/**
 * How a message inside a message is read. It may come in several pieces, which Protobuf merges, so that there is a value
 * that is not finished.
 */
interface ProtobufPart {
    /** What an empty message is while it is read. */
    Object begun();

    /**
     * Reads a piece of the message.
     *
     * @param group number of the group that it ends with; 0 if it ends with the input
     */
    void read(WireInput input, Object unfinished, int group, int depth);

    /** The value that Spark gets. */
    Object finished(Object unfinished);

    /** Bytes of memory that an empty message takes. */
    int cost();
}
