package io.lakefeed;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/** Parses JSON with single quotes, which need no escape in Java. */
public final class Json {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() {}

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
