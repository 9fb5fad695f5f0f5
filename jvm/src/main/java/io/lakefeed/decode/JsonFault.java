package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.io.JsonEOFException;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import java.io.IOException;
import java.io.Serializable;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * {@code json_fault(bytes)}: why they are not exactly one JSON object in UTF-8 (RFC 8259); null if they are.
 *
 * <p>Spark's {@code from_json} stops reading after the first object, takes the last of two fields of one name,
 * and replaces what is not UTF-8: each loses data without a word. {@code NaN} and {@code Infinity} are let
 * through, since Python's and Spark's own writers produce them.
 */
public final class JsonFault implements ScalarFunction<UTF8String>, Serializable {
    private static final long serialVersionUID = 1L;
    private static final JsonFactory FACTORY = JsonFactory.builder()
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
            .disable(StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION)
            .build();

    /** Called by generated code. */
    public UTF8String invoke(byte[] record) {
        if (record == null) {
            return null;
        }
        if (record.length == 0) {
            return UTF8String.fromString("empty: 0 bytes");
        }
        if (!UTF8String.fromBytes(record).isValid()) {
            return UTF8String.fromString("not UTF-8");
        }
        try (JsonParser parser = FACTORY.createParser(record)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                return UTF8String.fromString("not a JSON object");
            }
            parser.skipChildren();
            long end = parser.currentLocation().getByteOffset();
            if (parser.currentToken() != JsonToken.END_OBJECT) {
                return UTF8String.fromString("truncated JSON: " + record.length + " bytes");
            }
            return parser.nextToken() == null ? null : leftOver(end);
        } catch (JsonEOFException cut) {
            return UTF8String.fromString("truncated JSON: " + record.length + " bytes");
        } catch (JsonProcessingException invalid) {
            return UTF8String.fromString("not JSON: " + invalid.getOriginalMessage().split("[:(\n]", 2)[0].strip()
                    + (invalid.getLocation() == null ? "" : " at byte " + invalid.getLocation().getByteOffset()));
        } catch (IOException impossible) {
            return UTF8String.fromString("not JSON: " + impossible.getMessage());
        }
    }

    private static UTF8String leftOver(long end) {
        return UTF8String.fromString("something follows the JSON object after byte " + end);
    }

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {DataTypes.BinaryType};
    }

    @Override
    public DataType resultType() {
        return DataTypes.StringType;
    }

    @Override
    public String name() {
        return "json_fault";
    }

    @Override
    public String canonicalName() {
        return "io.lakefeed.json_fault";
    }

    @Override
    public String toString() {
        return "lakefeed.json_fault";
    }
}
