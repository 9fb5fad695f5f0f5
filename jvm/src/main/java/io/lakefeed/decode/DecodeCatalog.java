package io.lakefeed.decode;

import io.lakefeed.FunctionsOnly;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The decoder as an SQL function: {@code <catalog>.decode(bytes)}.
 *
 * <pre>
 * spark.conf.set("spark.sql.catalog.taxi", "io.lakefeed.decode.DecodeCatalog")
 * spark.conf.set("spark.sql.catalog.taxi.registry-url", "http://127.0.0.1:8081")
 * spark.conf.set("spark.sql.catalog.taxi.reader-schema", open("taxi.avsc").read())
 * spark.table("records").selectExpr("taxi.decode(value) AS decoded").select("decoded.value.*")
 * </pre>
 *
 * <p>Values are Avro unless {@code format} says otherwise; for the options see {@link AvroDecode} and {@link
 * FormatDecode}. A catalog is read once for each session and name: another configuration needs another name.
 */
public final class DecodeCatalog extends FunctionsOnly {
    @Override
    protected Map<String, Binding> functions(String name, CaseInsensitiveStringMap options) {
        return Map.of(
                "decode",
                arguments -> options.containsKey("format")
                        ? new FormatDecode(name, options)
                        : new AvroDecode(name, options));
    }
}
