package io.lakefeed.produce;

import io.lakefeed.FunctionsOnly;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The encoder as an SQL function: {@code <catalog>.encode(struct)}; {@link ProtobufEncode} lists the options. */
public final class EncodeCatalog extends FunctionsOnly {
    @Override
    protected Map<String, Binding> functions(String name, CaseInsensitiveStringMap options) {
        Map<String, String> settings = Map.copyOf(options.asCaseSensitiveMap());
        return Map.of("encode", arguments -> new ProtobufEncode(settings, arguments));
    }
}
