package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.Secrets;
import io.lakefeed.decode.RecordReader.Writers;
import java.io.Serializable;
import java.time.Duration;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code decode(bytes)} for Avro: {@code struct<value: struct<reader's schema>, schema_id: int, error: string>}.
 *
 * <p>Options of its catalog ({@link DecodeCatalog}): {@code reader-schema}; and either {@code registry-url}
 * (records in Confluent wire format) with {@code credentials} (a name in {@link Secrets}, its value
 * {@code user:password}), {@code registry-patience-seconds} (60), {@code accept} ({@link Acceptance}) and {@code subjects} (a JSON array), or {@code writer-schema} (records without
 * a header).
 *
 * <p>Says that it is not deterministic, so that Spark evaluates it once for each row, however many fields of
 * the result are used and filtered on.
 */
public final class AvroDecode implements ScalarFunction<InternalRow>, Serializable {
    private static final long serialVersionUID = 1L;

    private final String name;
    private final String readerSchema;
    private final String writerSchema;
    private final String registryUrl;
    private final long patienceSeconds;
    private final Acceptance accept;
    private final Set<String> subjects;
    /** Not in {@link #toString}: plans are shown. */
    private final String credentials;

    private final DataType valueType;
    private final StructType resultType;
    private transient ThreadLocal<AvroReader> readers;
    private transient AvroReader latest;

    /** The decoder that a catalog's options describe; copies the credentials out of {@link Secrets}. */
    AvroDecode(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        this.readerSchema = required(options, "reader-schema");
        this.writerSchema = options.get("writer-schema");
        this.registryUrl = writerSchema == null ? required(options, "registry-url") : null;
        this.patienceSeconds = options.getLong("registry-patience-seconds", 60);
        this.accept = Acceptance.of(options.get("accept"));
        this.subjects = subjects(options.get("subjects"));
        String secret = options.get("credentials");
        this.credentials = secret == null ? null : Secrets.get(secret);
        this.valueType = AvroTypes.of(AvroTypes.reader(readerSchema));
        StructType value = valueType instanceof StructType struct
                ? struct
                : new StructType().add("value", valueType);
        this.resultType = new StructType()
                .add("value", value)
                .add("schema_id", DataTypes.IntegerType)
                .add("error", DataTypes.StringType);
    }

    private static String required(CaseInsensitiveStringMap options, String key) {
        String value = options.get(key);
        if (value == null) {
            throw new IllegalArgumentException("the decoder's catalog has no option " + key);
        }
        return value;
    }

    /** Names in a JSON array. */
    private static Set<String> subjects(String option) {
        try {
            return option == null ? Set.of() : Set.of(new ObjectMapper().readValue(option, String[].class));
        } catch (JsonProcessingException invalid) {
            throw new IllegalArgumentException("subjects is not a JSON array of texts");
        }
    }

    /** Called by generated code, once for each record. */
    public InternalRow invoke(byte[] record) {
        AvroReader reader = latest;
        if (reader == null || reader.owner != Thread.currentThread()) {
            reader = ofThisThread();
        }
        return reader.read(record);
    }

    /** A task has a function object of its own, so nearly always one thread: it pays for no look-up. */
    private synchronized AvroReader ofThisThread() {
        if (readers == null) {
            readers = ThreadLocal.withInitial(this::newReader);
        }
        latest = readers.get();
        return latest;
    }

    private AvroReader newReader() {
        Schema reader = AvroTypes.reader(readerSchema);
        if (writerSchema != null) {
            return new AvroReader(reader, valueType, AvroTypes.parsed(writerSchema));
        }
        Registry registry = Registry.at(registryUrl, credentials);
        return new AvroReader(
                reader,
                valueType,
                new Writers<>(registry, Duration.ofSeconds(patienceSeconds), WriterSchema.AVRO, subjects),
                accept);
    }

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {DataTypes.BinaryType};
    }

    @Override
    public DataType resultType() {
        return resultType;
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
