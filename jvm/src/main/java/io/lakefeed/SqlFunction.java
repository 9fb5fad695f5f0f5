package io.lakefeed;

import java.io.Serializable;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;

/**
 * A function of a {@link FunctionsOnly} catalog. Spark's generated code calls the function's method {@code invoke}.
 *
 * <p>The function is declared non-deterministic, so that Spark evaluates it once for each row even if a query uses
 * several fields of the result.
 */
public abstract class SqlFunction<T> implements ScalarFunction<T>, Serializable {
    private static final long serialVersionUID = 1L;

    private final String name;
    private final String canonicalName;
    private final DataType resultType;
    private final DataType[] inputTypes;

    /** Creates a function. Spark compares functions by canonical name, so different settings need different names. */
    protected SqlFunction(String name, String canonicalName, DataType resultType, DataType... inputTypes) {
        this.name = name;
        this.canonicalName = "io.lakefeed." + canonicalName;
        this.resultType = resultType;
        this.inputTypes = inputTypes;
    }

    @Override
    public final DataType[] inputTypes() {
        return inputTypes;
    }

    @Override
    public final DataType resultType() {
        return resultType;
    }

    @Override
    public boolean isDeterministic() {
        return false;
    }

    @Override
    public final String name() {
        return name;
    }

    @Override
    public final String canonicalName() {
        return canonicalName;
    }

    /** Returns only the name: Spark prints it in plans, and a function's settings can contain credentials. */
    @Override
    public final String toString() {
        return canonicalName;
    }
}
