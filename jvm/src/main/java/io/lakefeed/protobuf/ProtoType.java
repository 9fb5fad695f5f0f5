package io.lakefeed.protobuf;

import java.util.Locale;

/** The types of fields, each with its wire type. */
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

    public String wordOf() {
        return name().toLowerCase(Locale.ROOT);
    }
}
