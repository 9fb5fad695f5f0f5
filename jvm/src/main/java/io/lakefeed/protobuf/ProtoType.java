package io.lakefeed.protobuf;

import java.util.Locale;

/** The types of fields, each with its wire type. */
public enum ProtoType {
    /** {@code double}: 8 bytes. */
    DOUBLE(WireInput.FIXED64),
    /** {@code float}: 4 bytes. */
    FLOAT(WireInput.FIXED32),
    /** {@code int32}: a varint; a negative number takes 10 bytes. */
    INT32(WireInput.VARINT),
    /** {@code int64}: a varint; a negative number takes 10 bytes. */
    INT64(WireInput.VARINT),
    /** {@code uint32}: a varint. */
    UINT32(WireInput.VARINT),
    /** {@code uint64}: a varint. */
    UINT64(WireInput.VARINT),
    /** {@code sint32}: a zigzag varint. */
    SINT32(WireInput.VARINT),
    /** {@code sint64}: a zigzag varint. */
    SINT64(WireInput.VARINT),
    /** {@code fixed32}: 4 bytes. */
    FIXED32(WireInput.FIXED32),
    /** {@code fixed64}: 8 bytes. */
    FIXED64(WireInput.FIXED64),
    /** {@code sfixed32}: 4 bytes. */
    SFIXED32(WireInput.FIXED32),
    /** {@code sfixed64}: 8 bytes. */
    SFIXED64(WireInput.FIXED64),
    /** {@code bool}: a varint, 0 or 1. */
    BOOL(WireInput.VARINT),
    /** {@code string}: a length and UTF-8. */
    STRING(WireInput.LENGTH),
    /** {@code bytes}: a length and bytes. */
    BYTES(WireInput.LENGTH),
    /** An enum: a varint with the value's number. */
    ENUM(WireInput.VARINT),
    /** A message: a length and fields, or a group. */
    MESSAGE(WireInput.LENGTH);

    private final int wireType;

    ProtoType(int wireType) {
        this.wireType = wireType;
    }

    /** Returns the wire type of one value. */
    public int wireType() {
        return wireType;
    }

    /** Returns whether repeated values can be packed: stored without tags, in one length-delimited field. */
    public boolean packable() {
        return wireType != WireInput.LENGTH;
    }

    /** Returns the scalar type with this name in the language; null if no scalar type has the name. */
    static ProtoType scalar(String name) {
        for (ProtoType type : values()) {
            if (type.wordOf().equals(name) && type != ENUM && type != MESSAGE) {
                return type;
            }
        }
        return null;
    }

    /** Returns the type's name in the language. */
    public String wordOf() {
        return name().toLowerCase(Locale.ROOT);
    }
}
