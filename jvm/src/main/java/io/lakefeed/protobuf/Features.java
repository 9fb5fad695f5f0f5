package io.lakefeed.protobuf;

import io.lakefeed.protobuf.ProtoFile.Presence;
import java.util.List;
import java.util.Map;

/**
 * The features of a file, message or field, which decide how fields are encoded.
 *
 * @param unlabelled the presence of a field without a label
 * @param delimited whether messages are encoded as groups
 * @param openEnums whether an enum can have values that its schema lacks; if so, its first value must be 0
 * @see <a href="https://protobuf.dev/editions/features/">features of editions</a>
 */
record Features(Presence unlabelled, boolean delimited, boolean openEnums) {
    static final Features PROTO2 = new Features(Presence.EXPLICIT, false, false);
    static final Features PROTO3 = new Features(Presence.IMPLICIT, false, true);
    static final Features EDITION = new Features(Presence.EXPLICIT, false, true);

    static final List<String> EDITIONS = List.of("2023", "2024");

    /** The places in a text where features can be set. */
    enum Place {
        FILE,
        MESSAGE,
        ONEOF,
        FIELD,
        ENUM
    }

    private record Feature(List<String> values, List<Place> places) {
        static Feature of(String values, Place... places) {
            return new Feature(List.of(values.split(" ")), List.of(places));
        }
    }

    private static final Map<String, Feature> KNOWN = Map.of(
            "field_presence", Feature.of("EXPLICIT IMPLICIT LEGACY_REQUIRED", Place.FILE, Place.FIELD),
            "enum_type", Feature.of("OPEN CLOSED", Place.FILE, Place.ENUM),
            "repeated_field_encoding", Feature.of("PACKED EXPANDED", Place.FILE, Place.FIELD),
            "utf8_validation", Feature.of("VERIFY NONE", Place.FILE, Place.FIELD),
            "message_encoding", Feature.of("LENGTH_PREFIXED DELIMITED", Place.FILE, Place.FIELD),
            "json_format", Feature.of("ALLOW LEGACY_BEST_EFFORT", Place.FILE, Place.MESSAGE, Place.ENUM),
            "enforce_naming_style", Feature.of("STYLE2024 STYLE_LEGACY", Place.values()),
            "default_symbol_visibility", Feature.of("EXPORT_ALL EXPORT_TOP_LEVEL LOCAL_ALL STRICT", Place.FILE));

    static Features ofSyntax(String syntax) {
        return switch (syntax) {
            case "proto2", "" -> PROTO2;
            case "proto3" -> PROTO3;
            default -> throw new SchemaException("the syntax \"" + syntax + "\" is unknown: write proto2 or proto3");
        };
    }

    /** Returns the presence of a field with this label; {@code label} is null for a field without a label. */
    Presence presence(Presence label) {
        return label == null ? unlabelled : label;
    }

    static boolean isKnown(String feature, String value, Place place) {
        Feature known = KNOWN.get(feature);
        return known != null && known.values.contains(value) && known.places.contains(place);
    }

    /** Returns these features with one of them changed; {@code feature} and {@code value} are words of the language. */
    Features with(String feature, String value) {
        return switch (feature + " " + value) {
            case "field_presence IMPLICIT" -> new Features(Presence.IMPLICIT, delimited, openEnums);
            case "field_presence EXPLICIT" -> new Features(Presence.EXPLICIT, delimited, openEnums);
            case "field_presence LEGACY_REQUIRED" -> new Features(Presence.REQUIRED, delimited, openEnums);
            case "message_encoding DELIMITED" -> new Features(unlabelled, true, openEnums);
            case "message_encoding LENGTH_PREFIXED" -> new Features(unlabelled, false, openEnums);
            case "enum_type OPEN" -> new Features(unlabelled, delimited, true);
            case "enum_type CLOSED" -> new Features(unlabelled, delimited, false);
            default -> this;
        };
    }
}
