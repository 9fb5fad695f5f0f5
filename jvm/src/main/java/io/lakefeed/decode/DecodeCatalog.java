package io.lakefeed.decode;

import io.lakefeed.FunctionsOnly;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Provides the decoder as an SQL function: {@code <catalog>.decode(bytes)} and {@code decode(bytes, headers)}.
 *
 * <pre>
 * spark.conf.set("spark.sql.catalog.taxi", "io.lakefeed.decode.DecodeCatalog")
 * spark.conf.set("spark.sql.catalog.taxi.registry-url", "http://127.0.0.1:8081")
 * spark.conf.set("spark.sql.catalog.taxi.reader-schema", open("taxi.avsc").read())
 * spark.table("records").selectExpr("taxi.decode(value) AS decoded").select("decoded.value.*")
 * </pre>
 *
 * <p>{@link DecodeOptions} lists the options. Spark reads a catalog's options only once in a session, so another
 * configuration needs another name.
 */
public final class DecodeCatalog extends FunctionsOnly {
    @Override
    protected Map<String, Binding> functions(String name, CaseInsensitiveStringMap options) {
        return Map.of("decode", arguments -> new DecodeFunction(name, options, arguments));
    }
}
