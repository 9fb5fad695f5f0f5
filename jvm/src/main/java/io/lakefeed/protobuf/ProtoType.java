package io.lakefeed.protobuf;

import java.util.Locale;

/** The types of fields, with the wire type of each. */
public enum ProtoType {
    DOUBLE(WireInput.FIXED64),
    FLOAT(WireInput.FIXED32),
    INT32(WireInput.VARINT),
    INT64(WireInput.VARINT),
    UINT32(WireInput.VARINT),
    UINT64(WireInput.VARINT),
    SINT32(WireInput.VARINT),
    SINT64(WireInput.VARINT),
    FIXED32(WireInput.FIXED32),
    FIXED64(WireInput.FIXED64),
    SFIXED32(WireInput.FIXED32),
    SFIXED64(WireInput.FIXED64),
    BOOL(WireInput.VARINT),
    STRING(WireInput.LENGTH),
    BYTES(WireInput.LENGTH),
    ENUM(WireInput.VARINT),
    MESSAGE(WireInput.LENGTH);

    private final int wireType;

    ProtoType(int wireType) {
        this.wireType = wireType;
    }

    /** The wire type of one value. */
    public int wireType() {
        return wireType;
    }

    /** Whether repeated values can stand in one length-delimited field without tags. */
    public boolean packable() {
        return wireType != WireInput.LENGTH;
    }

    /** The scalar type of this name in the language; null if it is none. */
    static ProtoType scalar(String name) {
        for (ProtoType type : values()) {
            if (type.wordOf().equals(name) && type != ENUM && type != MESSAGE) {
                return type;
            }
        }
        return null;
    }

    /** As the language writes it. */
    public String wordOf() {
        return name().toLowerCase(Locale.ROOT);
    }
}
