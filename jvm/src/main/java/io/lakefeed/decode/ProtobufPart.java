package io.lakefeed.decode;

import io.lakefeed.protobuf.WireInput;

/**
 * Reads a message inside a message. It may come in several pieces, which Protobuf merges, so a value may be unfinished.
 */
interface ProtobufPart {
    /** Returns a message of which nothing has been read. */
    Object begun();

    /**
     * Reads a piece of the message.
     *
     * @param group number of the group that it ends with; 0 if it ends with the input
     */
    void read(WireInput input, Object unfinished, int group, int depth);

    /** Returns the value for Spark. */
    Object finished(Object unfinished);

    /** Returns the bytes of memory that an empty message takes. */
    int cost();
}
