package io.lakefeed.topics;

import io.lakefeed.FunctionsOnly;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Provides {@code <catalog>.batch(source)}: see {@link BatchFunction}. */
public final class BatchCatalog extends FunctionsOnly {
    @Override
    protected Map<String, Binding> functions(String name, CaseInsensitiveStringMap options) {
        return Map.of("batch", arguments -> new BatchFunction());
    }
}
