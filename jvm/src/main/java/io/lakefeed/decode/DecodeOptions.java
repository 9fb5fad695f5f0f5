package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.Secrets;
import io.lakefeed.decode.RecordReader.Writers;
import io.lakefeed.protobuf.ProtoTypes;
import java.io.Serializable;
import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The options of a {@link DecodeCatalog}, and the reader that they describe.
 *
 * <p>{@code format} is {@code avro} (default), {@code protobuf}, {@code json}, {@code string}, or the class of an
 * installed package's {@link RecordReader}. Records in Confluent wire format need {@code registry-url}, and may have
 * {@code credentials} (a name in {@link Secrets}; its value is {@code user:password}), {@code
 * registry-patience-seconds} (60), {@code accept} ({@link Acceptance}), {@code subject} (the context of the ids) and
 * {@code subjects} (a JSON array of the subjects to accept), and {@code id-headers} ({@code value} or {@code key}: whose
 * {@link IdHeader}s count; none) and {@code glue} (for AWS Glue's registry, see {@link GlueClient}). The other options depend on the format:
 *
 * <ul>
 *   <li>{@code avro}: {@code reader-schema}; and {@code writer-schema} for records without a header;
 *   <li>{@code protobuf}: {@code reader-schema} (Avro); and a writer's schema for messages without a header: {@code
 *       writer-schema} with {@code writer-references} (a JSON array of texts), or {@code writer-set} (a descriptor set
 *       in Base64), and {@code message};
 *   <li>{@code json}: {@code reader-schema} (Avro) or {@code reader-type} (JSON of a StructType); {@code lenient}, see
 *       {@link TextValue.Rules#lenient}; {@code unknown-field}: a field without a column is ignored, {@code
 *       dead_letter} makes it an error of its record, {@code evolve} reports fields that can become columns, except
 *       {@code refused-fields} (a JSON array of paths), {@code variant} stores it in the last column; {@code whole}:
 *       the only column is the value itself; {@code time-zone} of timestamps that state no time zone (UTC);
 *   <li>{@code string}: none;
 *   <li>a class: {@code reader-type}, and its own options.
 * </ul>
 */
final class DecodeOptions implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, String> options;
    private final String credentials;
    private final DataType type;

    /** Reads a catalog's options; copies the credentials from {@link Secrets}. */
    DecodeOptions(CaseInsensitiveStringMap given) {
        this.options = new HashMap<>(given);
        String secret = options.get("credentials");
        this.credentials = secret == null ? null : Secrets.get(secret);
        this.type = type();
    }

    /** Returns the fields of the result's {@code value}; for a value without fields, a single field {@code value}. */
    StructType columns() {
        return type instanceof StructType struct ? struct : new StructType().add("value", type);
    }

    /** Returns the names of the headers that can have a schema's id, or null. */
    IdHeader.Names idHeaders() {
        String part = options.get("id-headers");
        return part == null || !options.containsKey("registry-url") ? null : new IdHeader.Names(part);
    }

    RecordReader newReader() {
        return switch (format()) {
            case "avro" -> options.containsKey("writer-schema")
                    ? new AvroReader(readerSchema(), type, AvroTypes.parsed(required("writer-schema")))
                    : new AvroReader(readerSchema(), type, writers(WriterSchema.AVRO), acceptance());
            case "protobuf" -> options.containsKey("registry-url")
                    ? new ProtobufReader(readerSchema(), columns(), writers(WriterSchema.PROTOBUF), acceptance())
                    : new ProtobufReader(readerSchema(), columns(), writer().message(options.get("message")));
            case "json" -> new JsonReader(
                    columns(),
                    options.containsKey("reader-schema") ? readerSchema() : null,
                    rules(),
                    unknownFields(),
                    Boolean.parseBoolean(options.get("whole")),
                    options.containsKey("registry-url") ? writers(WriterSchema.JSON) : null);
            case "string" -> new StringReader();
            default -> readerOfPackage();
        };
    }

    /** Creates the reader of an installed package, whose jar is on the class path. */
    private RecordReader readerOfPackage() {
        try {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            Class<?> reader = Class.forName(format(), true, loader);
            return (RecordReader) reader.getConstructor(StructType.class, Map.class).newInstance(columns(), options);
        } catch (InvocationTargetException refused) {
            throw new IllegalArgumentException(refused.getCause().getMessage(), refused.getCause());
        } catch (ReflectiveOperationException | ClassCastException missing) {
            throw new IllegalArgumentException("the decoder has no format " + format()
                    + ": use avro, protobuf, json, string or the class of an installed package's reader", missing);
        }
    }

    private String format() {
        return options.getOrDefault("format", "avro");
    }

    private String required(String key) {
        String value = options.get(key);
        if (value == null) {
            throw new IllegalArgumentException("the decoder's catalog has no option " + key + ": set it");
        }
        return value;
    }

    private DataType type() {
        if (format().equals("string")) {
            return DataTypes.StringType;
        }
        if (options.containsKey("reader-type")) {
            return DataType.fromJson(options.get("reader-type"));
        }
        DataType read = AvroTypes.of(readerSchema());
        if (!format().equals("avro") && !(read instanceof StructType)) {
            throw new IllegalArgumentException(
                    "the reader's schema is not a record: only the format avro reads values of other types");
        }
        return read;
    }

    private Schema readerSchema() {
        return AvroTypes.reader(required("reader-schema"));
    }

    private LeftOut.Rule unknownFields() {
        String rule = options.getOrDefault("unknown-field", "ignore");
        return new LeftOut.Rule(
                rule.equals("dead_letter"),
                rule.equals("evolve") ? Set.of(texts("refused-fields")) : null,
                rule.equals("variant"));
    }

    private Acceptance acceptance() {
        return Acceptance.of(options.get("accept"));
    }

    private TextValue.Rules rules() {
        return TextValue.Rules.of(options);
    }

    private <T> Writers<T> writers(WriterSchema<T> kind) {
        Registry registry = Registry.at(
                required("registry-url"), credentials, options.get("subject"), options.get("glue"));
        long patience = Long.parseLong(options.getOrDefault("registry-patience-seconds", "60"));
        return new Writers<>(registry, Duration.ofSeconds(patience), kind, subjects());
    }

    /** Returns the subjects in the order of the pipeline file, in which errors list them. */
    private Set<String> subjects() {
        return new LinkedHashSet<>(Arrays.asList(texts("subjects")));
    }

    private ProtoTypes writer() {
        return options.containsKey("writer-set")
                ? ProtobufSchemas.typesOfSet(options.get("writer-set"))
                : ProtobufSchemas.types(required("writer-schema"), Arrays.asList(texts("writer-references")));
    }

    private String[] texts(String key) {
        try {
            return JSON.readValue(options.getOrDefault(key, "[]"), String[].class);
        } catch (JsonProcessingException invalid) {
            throw new IllegalArgumentException("the decoder's option " + key + " must be a JSON array of texts");
        }
    }

    /** Reads values that are text in UTF-8. An empty record is the empty text. */
    static final class StringReader extends RecordReader {
        @Override
        boolean takesEmpty() {
            return true;
        }

        @Override
        protected InternalRow value(byte[] record, int from, int schemaId) {
            UTF8String text = UTF8String.fromBytes(record);
            if (!SparkApi.isUtf8(text)) {
                throw new BadRecord("not UTF-8");
            }
            return new GenericInternalRow(new Object[] {text});
        }
    }
}
