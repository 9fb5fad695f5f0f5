package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.exc.StreamConstraintsException;
import com.fasterxml.jackson.core.io.JsonEOFException;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import java.io.Closeable;
import java.io.IOException;
import java.io.StringWriter;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads the tokens of one JSON document within the memory budget of its record.
 *
 * <p>Jackson must not cache the names of fields: if an object's keys are data, it would copy the cache for each record.
 * Jackson limits only the nesting. {@link TextValue} limits the length of numbers.
 */
final class JsonInput implements Closeable {
    private static final int DEEPEST = 1_000;
    private static final char REPLACEMENT = '\uFFFD';
    private static final JsonFactory STRICT = factory().build();
    private static final JsonFactory LENIENT = factory().enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS).build();

    final JsonParser parser;
    final MemoryBudget budget;

    /** Collects fields without a column; null if the task does not count such fields. */
    LeftOut leftOut;

    /** How fields without a column are treated. */
    LeftOut.Rule unknown = LeftOut.Rule.IGNORE;
    /** The outermost fields that have no column, or contain a field without a column, by name; null if none. */
    Set<String> remainder;

    /** Whether a field without a column was read since the outermost record's reader set this to false. */
    boolean isIncomplete;

    private final boolean lenient;
    /** Whether the document has escapes: only they can produce half of a surrogate pair. */
    private final boolean escapes;

    /** Opens a document; {@code lenient} is {@link TextValue.Rules#lenient}. */
    JsonInput(String document, MemoryBudget budget, boolean lenient) throws IOException {
        this.parser = (lenient ? LENIENT : STRICT).createParser(document);
        this.budget = budget;
        this.lenient = lenient;
        this.escapes = document.indexOf('\\') >= 0;
    }

    private static JsonFactoryBuilder factory() {
        return new JsonFactoryBuilder()
                .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
                .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
                .disable(StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION)
                .streamReadConstraints(SparkApi.namesOfAnyLength()
                        .maxNestingDepth(DEEPEST)
                        .maxNumberLength(Integer.MAX_VALUE)
                        .maxStringLength(Integer.MAX_VALUE)
                        .build());
    }

    @Override
    public void close() throws IOException {
        parser.close();
    }

    /** Returns the error for a token that is not of the expected type. */
    BadRecord misfit(String expected) {
        return new BadRecord("expected " + expected + ", found " + switch (parser.currentToken()) {
            case START_ARRAY -> "an array";
            case START_OBJECT -> "an object";
            case VALUE_STRING -> "a string";
            case VALUE_TRUE, VALUE_FALSE -> "a boolean";
            case VALUE_NULL -> "null";
            default -> "a number";
        });
    }

    /** Adds the name of an outermost field to {@link #remainder}. */
    void keep(String name) {
        remainder = remainder == null ? new HashSet<>() : remainder;
        budget.charge(2L * MemoryBudget.OBJECT);
        remainder.add(name);
    }

    String text() throws IOException {
        return checked(parser.getText());
    }

    String name() throws IOException {
        return checked(parser.currentName());
    }

    private String checked(String text) {
        if (!escapes) {
            return text;
        }
        StringBuilder repaired = null;
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            if (!Character.isSurrogate(c)) {
                continue;
            }
            if (Character.isHighSurrogate(c) && at + 1 < text.length() && Character.isLowSurrogate(text.charAt(at + 1))) {
                at++;
                continue;
            }
            if (!lenient) {
                throw new BadRecord("half of a surrogate pair, which is no character");
            }
            repaired = repaired == null ? new StringBuilder(text) : repaired;
            repaired.setCharAt(at, REPLACEMENT);
        }
        return repaired == null ? text : repaired.toString();
    }

    /** Skips the current value; returns whether it contains a text, number or boolean. */
    boolean skipValue() throws IOException {
        boolean found = false;
        int depth = 0;
        for (JsonToken token = parser.currentToken(); ; token = parser.nextToken()) {
            found |= token.isScalarValue() && token != JsonToken.VALUE_NULL;
            depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
            if (depth == 0) {
                return found;
            }
        }
    }

    /** Returns the current value as compact JSON with numbers as written; the parser is then at its last token. */
    UTF8String json() throws IOException {
        StringWriter text = new StringWriter();
        try (JsonGenerator generator = STRICT.createGenerator(text)) {
            copy(generator);
        }
        return UTF8String.fromString(text.toString());
    }

    /** Returns the fields of an object with these names, as compact JSON; the parser must be before the object. */
    UTF8String fields(Set<String> names) throws IOException {
        StringWriter text = new StringWriter();
        try (JsonGenerator generator = STRICT.createGenerator(text)) {
            parser.nextToken();
            generator.writeStartObject();
            while (parser.nextToken() != JsonToken.END_OBJECT) {
                String raw = parser.currentName();
                String name = name();
                parser.nextToken();
                if (names.contains(raw)) {
                    generator.writeFieldName(name);
                    copy(generator);
                } else {
                    parser.skipChildren();
                }
            }
            generator.writeEndObject();
        }
        return UTF8String.fromString(text.toString());
    }

    /** Copies the current value; the parser is then at the value's last token. */
    private void copy(JsonGenerator generator) throws IOException {
        int depth = 0;
        for (JsonToken token = parser.currentToken(); ; token = parser.nextToken()) {
            switch (token) {
                case START_OBJECT -> generator.writeStartObject();
                case START_ARRAY -> generator.writeStartArray();
                case END_OBJECT -> generator.writeEndObject();
                case END_ARRAY -> generator.writeEndArray();
                case FIELD_NAME -> generator.writeFieldName(name());
                case VALUE_STRING -> generator.writeString(text());
                case VALUE_TRUE, VALUE_FALSE -> generator.writeBoolean(parser.getBooleanValue());
                case VALUE_NULL -> generator.writeNull();
                default -> generator.writeNumber(parser.getText());
            }
            depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
            if (depth == 0) {
                return;
            }
        }
    }

    /** Returns the current value as a variant; the parser is then at the value's last token. */
    Object variant() throws IOException {
        return variant(json(), budget);
    }

    /** Returns JSON text as a variant. */
    static Object variant(UTF8String json, MemoryBudget budget) throws IOException {
        budget.charge(4L * MemoryBudget.OBJECT + 4L * json.numBytes());
        return SparkApi.variant(json.toString());
    }

    /** Converts an exception to a record's error; drops the parser's message, which has values of the record. */
    static BadRecord reason(Exception caught) {
        if (caught instanceof RuntimeException unexpected) {
            return BadRecord.of(unexpected);
        }
        if (caught instanceof JsonEOFException) {
            return new BadRecord("truncated JSON");
        }
        if (caught instanceof StreamConstraintsException) {
            return new BadRecord("nested deeper than " + DEEPEST + " levels");
        }
        if (!(caught instanceof JsonProcessingException invalid)) {
            return new BadRecord("not JSON");
        }
        if (invalid.getOriginalMessage().startsWith("Non-standard token")) {
            return new BadRecord("NaN and Infinity are not JSON (lenient: true reads them)");
        }
        return new BadRecord("not JSON"
                + (invalid.getLocation() == null ? "" : " at character " + invalid.getLocation().getCharOffset()));
    }
}
