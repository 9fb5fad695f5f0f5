package io.lakefeed.local;

import io.lakefeed.FunctionsOnly;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Provides {@code <catalog>.pace(bytes)}, with the option {@code rows-per-second}: see {@link Pace}.
 *
 * <pre>
 * spark.conf.set("spark.sql.catalog.slow", "io.lakefeed.local.PaceCatalog")
 * spark.conf.set("spark.sql.catalog.slow.rows-per-second", "1000")
 * rows.withColumn("value", expr("slow.pace(value)"))
 * </pre>
 */
public final class PaceCatalog extends FunctionsOnly {
    @Override
    protected Map<String, Binding> functions(String name, CaseInsensitiveStringMap options) {
        double rate = options.getDouble("rows-per-second", 0);
        if (!(rate > 0)) {
            throw new IllegalArgumentException("catalog " + name + " needs the option rows-per-second, above 0");
        }
        return Map.of("pace", arguments -> new Pace(name, rate));
    }
}
