package io.lakefeed;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Base64;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A catalog that has only functions.
 *
 * <p>Spark passes to {@code bind} the types of the arguments, but no literal, so a call cannot configure its function.
 * The catalog configures the function instead: each configuration is a catalog with its own name and the options {@code
 * spark.sql.catalog.<name>.<option>}. One option, {@code encoded}, can contain all others as a JSON object in Base64,
 * because Spark would replace {@code ${env:NAME}} in the plain text of a schema.
 */
public abstract class FunctionsOnly implements FunctionCatalog {
    private static final String ENCODED = "encoded";

    private String name;
    private Map<String, Binding> functions;

    /** Creates a function of the catalog when Spark binds a call. */
    @FunctionalInterface
    protected interface Binding {
        /** Creates the function for arguments of these types. */
        BoundFunction bind(StructType arguments);
    }

    /** Returns the functions of a catalog with this name and these options. */
    protected Map<String, Binding> functions(String name, CaseInsensitiveStringMap options) {
        return Map.of();
    }

    protected Binding function(String function) {
        return functions.get(function);
    }

    @Override
    public final void initialize(String name, CaseInsensitiveStringMap options) {
        SparkLine.require();
        this.name = name;
        String encoded = options.get(ENCODED);
        this.functions = functions(name, encoded == null ? options : decoded(encoded));
    }

    private static CaseInsensitiveStringMap decoded(String options) {
        try {
            byte[] json = Base64.getDecoder().decode(options);
            return new CaseInsensitiveStringMap(new ObjectMapper().readValue(json, new TypeReference<>() {}));
        } catch (IOException notJson) {
            throw new UncheckedIOException(notJson);
        }
    }

    @Override
    public final String name() {
        return name;
    }

    @Override
    public final Identifier[] listFunctions(String[] namespace) {
        return functions.keySet().stream().map(each -> Identifier.of(namespace, each)).toArray(Identifier[]::new);
    }

    @Override
    public final UnboundFunction loadFunction(Identifier identifier) throws NoSuchFunctionException {
        Binding binding = identifier.namespace().length == 0 ? function(identifier.name()) : null;
        if (binding == null) {
            throw new NoSuchFunctionException(identifier);
        }
        return new Named(identifier.name(), binding);
    }

    private record Named(String name, Binding binding) implements UnboundFunction {
        @Override
        public BoundFunction bind(StructType arguments) {
            return binding.bind(arguments);
        }

        @Override
        public String description() {
            return name + " of lakefeed";
        }
    }
}
