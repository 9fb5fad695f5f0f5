package io.lakefeed;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/** JSON with single quotes, which Java's texts need not escape. */
public final class Json {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() {}

    /** Parses JSON that has single quotes. */
    public static JsonNode of(String text) {
        try {
            return MAPPER.readTree(quoted(text));
        } catch (JsonProcessingException invalid) {
            throw new IllegalArgumentException(invalid);
        }
    }

    /** Replaces single quotes by double ones. */
    public static String quoted(String text) {
        return text.replace('\'', '"');
    }
}
