package io.lakefeed.encode;

import io.lakefeed.FunctionsOnly;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Provides {@code <catalog>.encode(struct)}; {@link AvroEncode} and {@link ProtobufEncode} list the options. */
public final class EncodeCatalog extends FunctionsOnly {
    @Override
    protected Map<String, Binding> functions(String name, CaseInsensitiveStringMap options) {
        Map<String, String> settings = Map.copyOf(options.asCaseSensitiveMap());
        boolean avro = settings.containsKey("avro");
        return Map.of(
                "encode",
                arguments -> avro ? new AvroEncode(settings, arguments) : new ProtobufEncode(settings, arguments));
    }
}
