package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.Secrets;
import io.lakefeed.decode.RecordReader.Writers;
import io.lakefeed.protobuf.ProtoTypes;
import java.io.Serializable;
import java.time.Duration;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code decode(bytes)} for all formats but Avro: {@code struct<value: struct<…>, schema_id: int, error: string>}.
 *
 * <p>Options of its catalog ({@link DecodeCatalog}) beside {@code format}:
 *
 * <ul>
 *   <li>{@code protobuf}: {@code reader-schema} (Avro); {@code registry-url} and its companions as for {@link
 *       AvroDecode}, or a writer's schema for bare messages: {@code writer-schema} with {@code writer-references} (a
 *       JSON array of texts), or {@code writer-set} (a descriptor set in Base64), and {@code message};
 *   <li>{@code json}: {@code reader-schema} (Avro), or {@code reader-type} (JSON of a StructType); {@code
 *       registry-url} and its companions for values with a header;
 *   <li>{@code csv}: {@code reader-type}, {@code delimiter}, {@code quote}, {@code escape}, {@code null-value};
 *   <li>{@code json}: {@code lenient}, true for {@link TextValue.Rules#lenient};
 *   <li>{@code json} and {@code csv}: {@code time-zone} of moments that do not say theirs (UTC);
 *   <li>{@code string}: nothing.
 * </ul>
 */
public final class FormatDecode implements ScalarFunction<InternalRow>, Serializable {
    private static final long serialVersionUID = 1L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String name;
    private final Map<String, String> options;
    /** Not in {@link #toString}: plans are shown. */
    private final String credentials;

    private final StructType type;
    private transient ThreadLocal<RecordReader> readers;
    private transient RecordReader latest;
    private transient Thread owner;

    /** The decoder that a catalog's options describe; copies the credentials out of {@link Secrets}. */
    FormatDecode(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        this.options = new HashMap<>(options.asCaseSensitiveMap());
        String secret = options.get("credentials");
        this.credentials = secret == null ? null : Secrets.get(secret);
        this.type = valueType();
        newReader(); // What is wrong with the options shows on the driver.
    }

    private StructType valueType() {
        if (options.containsKey("reader-type")) {
            return (StructType) DataType.fromJson(options.get("reader-type"));
        }
        if (options.get("format").equals("string")) {
            return new StructType().add("value", DataTypes.StringType);
        }
        if (AvroTypes.of(readerSchema()) instanceof StructType struct) {
            return struct;
        }
        throw new IllegalArgumentException("the reader's schema is no record");
    }

    private Schema readerSchema() {
        return AvroTypes.reader(options.get("reader-schema"));
    }

    private RecordReader newReader() {
        return switch (options.get("format")) {
            case "protobuf" -> options.containsKey("registry-url")
                    ? new ProtobufReader(
                            readerSchema(), type, writers(WriterSchema.PROTOBUF), Acceptance.of(options.get("accept")))
                    : new ProtobufReader(readerSchema(), type, writer().message(options.get("message")));
            case "json" -> new JsonReader(
                    JsonValue.record(type, options.containsKey("reader-schema") ? readerSchema() : null, rules()),
                    rules().lenient(),
                    options.containsKey("registry-url") ? writers(WriterSchema.JSON) : null);
            case "csv" -> new CsvReader(type, dialect(), rules());
            case "string" -> new StringReader();
            default -> throw new IllegalArgumentException("no format " + options.get("format"));
        };
    }

    private TextValue.Rules rules() {
        boolean lenient = Boolean.parseBoolean(options.get("lenient"));
        return new TextValue.Rules(ZoneId.of(options.getOrDefault("time-zone", "UTC")), lenient);
    }

    private CsvReader.Dialect dialect() {
        return new CsvReader.Dialect(
                options.get("delimiter").charAt(0),
                options.get("quote").charAt(0),
                options.get("escape").charAt(0),
                options.get("null-value"));
    }

    private <T> Writers<T> writers(WriterSchema<T> kind) {
        Registry registry = Registry.at(options.get("registry-url"), credentials);
        long patience = Long.parseLong(options.getOrDefault("registry-patience-seconds", "60"));
        return new Writers<>(registry, Duration.ofSeconds(patience), kind, Set.of());
    }

    private ProtoTypes writer() {
        if (options.containsKey("writer-set")) {
            return ProtobufSchemas.typesOfSet(options.get("writer-set"));
        }
        try {
            String[] referred = JSON.readValue(options.getOrDefault("writer-references", "[]"), String[].class);
            return ProtobufSchemas.types(options.get("writer-schema"), Arrays.asList(referred));
        } catch (JsonProcessingException invalid) {
            throw new IllegalArgumentException("writer-references: " + invalid.getOriginalMessage());
        }
    }

    /** Called by generated code, once for each record. */
    public InternalRow invoke(byte[] record) {
        RecordReader reader = latest;
        if (reader == null || owner != Thread.currentThread()) {
            reader = ofThisThread();
        }
        return reader.read(record);
    }

    /** A task has a function object of its own, so nearly always one thread: it pays for no look-up. */
    private synchronized RecordReader ofThisThread() {
        if (readers == null) {
            readers = ThreadLocal.withInitial(this::newReader);
        }
        RecordReader own = readers.get();
        if (latest == null) {
            latest = own;
            owner = Thread.currentThread();
        }
        return own;
    }

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {DataTypes.BinaryType};
    }

    @Override
    public DataType resultType() {
        return new StructType()
                .add("value", type)
                .add("schema_id", DataTypes.IntegerType)
                .add("error", DataTypes.StringType);
    }

    @Override
    public boolean isResultNullable() {
        return false;
    }

    @Override
    public boolean isDeterministic() {
        return false;
    }

    @Override
    public String name() {
        return "decode";
    }

    @Override
    public String canonicalName() {
        return "io.lakefeed.decode." + name;
    }

    @Override
    public String toString() {
        return name + ".decode";
    }
}
