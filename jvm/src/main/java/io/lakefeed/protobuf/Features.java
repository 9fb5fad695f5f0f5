package io.lakefeed.protobuf;

import io.lakefeed.protobuf.ProtoFile.Presence;

/**
 * How fields are written where a file, a message or a field does not say it otherwise.
 *
 * @param unlabelled what a singular field without a label is
 * @param delimited whether messages are encoded as groups
 * @see <a href="https://protobuf.dev/editions/features/">features of editions</a>
 */
record Features(Presence unlabelled, boolean delimited) {
    static final Features PROTO2 = new Features(Presence.EXPLICIT, false);
    static final Features PROTO3 = new Features(Presence.IMPLICIT, false);
    static final Features EDITION = new Features(Presence.EXPLICIT, false);

    static Features ofSyntax(String syntax) {
        return switch (syntax) {
            case "proto2", "" -> PROTO2;
            case "proto3" -> PROTO3;
            default -> throw new SchemaException("syntax \"" + syntax + "\" is not known; proto2 and proto3 are");
        };
    }

    /** The presence of a field with this label, null for none. */
    Presence presence(Presence label) {
        return label == null ? unlabelled : label;
    }

    /** These, but for one feature by its name in the language. */
    Features with(String feature, String value) {
        return switch (feature + " " + value) {
            case "field_presence IMPLICIT" -> new Features(Presence.IMPLICIT, delimited);
            case "field_presence EXPLICIT" -> new Features(Presence.EXPLICIT, delimited);
            case "field_presence LEGACY_REQUIRED" -> new Features(Presence.REQUIRED, delimited);
            case "message_encoding DELIMITED" -> new Features(unlabelled, true);
            case "message_encoding LENGTH_PREFIXED" -> new Features(unlabelled, false);
            default -> this;
        };
    }
}
