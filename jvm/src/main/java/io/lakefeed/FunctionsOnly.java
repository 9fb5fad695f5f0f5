package io.lakefeed;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A catalog that holds functions and nothing else.
 *
 * <p>Spark gives {@code bind} the types of the arguments but never a literal, so a function cannot be
 * configured by its call. It is configured by its catalog: each distinct configuration is a catalog of its own
 * name, with its options in {@code spark.sql.catalog.<name>.<option>}.
 */
public abstract class FunctionsOnly implements FunctionCatalog {
    private String name;
    private Map<String, Binding> functions;

    /** Makes the function object for arguments of the given types. */
    @FunctionalInterface
    protected interface Binding {
        /** Creates the function for arguments of these types. */
        BoundFunction bind(StructType arguments);
    }

    /** The functions of a catalog called {@code name} that has these options. */
    protected abstract Map<String, Binding> functions(String name, CaseInsensitiveStringMap options);

    /** The function of this name, or null. */
    protected Binding function(String function) {
        return functions.get(function);
    }

    @Override
    public final void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        this.functions = functions(name, options);
    }

    @Override
    public final String name() {
        return name;
    }

    @Override
    public final Identifier[] listFunctions(String[] namespace) {
        List<Identifier> found =
                functions.keySet().stream().map(each -> Identifier.of(namespace, each)).toList();
        return found.toArray(Identifier[]::new);
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
