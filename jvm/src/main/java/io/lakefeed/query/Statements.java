package io.lakefeed.query;

import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;

/**
 * Hands SQL to Spark's parser as it is written: the only class that does.
 *
 * <p>Spark replaces {@code ${name}} by settings, system properties and variables of the driver's environment in each
 * text that a session parses, names and literals included. A session of the user's does so by default, and Spark has no
 * escape. So the parser runs with a copy of the session's settings in which this is off.
 */
public final class Statements {
    private Statements() {}

    /**
     * Runs a statement, or plans it if it is a query.
     *
     * @param values of the named parameters, {@code :name}; they are no part of the text
     */
    public static Dataset<Row> run(org.apache.spark.sql.SparkSession spark, String text, Map<String, Object> values) {
        return asWritten(spark, !values.isEmpty(), () -> spark.sql(text, values));
    }

    /** Returns a column for an expression in SQL. */
    public static Column expression(org.apache.spark.sql.SparkSession spark, String text) {
        return asWritten(spark, false, () -> ExpressionUtils.column(parser(spark).parseExpression(text)));
    }

    /** Returns the plan of a statement, which is not run. */
    static LogicalPlan plan(org.apache.spark.sql.SparkSession spark, String text) {
        return asWritten(spark, false, () -> parser(spark).parsePlan(text));
    }

    private static ParserInterface parser(org.apache.spark.sql.SparkSession spark) {
        return ((SparkSession) spark).sessionState().sqlParser();
    }

    private static <T> T asWritten(
            org.apache.spark.sql.SparkSession spark, boolean hasValues, Callable<T> act) {
        SQLConf settings = ((SparkSession) spark).sessionState().conf().clone();
        settings.setConfString("spark.sql.variable.substitute", "false");
        if (hasValues) {
            // Spark writes them with escapes, which it does not read with this on.
            settings.setConfString("spark.sql.parser.escapedStringLiterals", "false");
        }
        // With it on, table properties are no place for parameters.
        settings.setConfString("spark.sql.legacy.parameterSubstitution.constantsOnly", "false");
        return SQLConf$.MODULE$.withExistingConf(settings, () -> {
            try {
                return act.call();
            } catch (Exception error) {
                throw Statements.<RuntimeException>asItIs(error);
            }
        });
    }

    /** Throws Spark's ParseException, which Scala's functions do not declare. */
    @SuppressWarnings("unchecked")
    private static <E extends Exception> E asItIs(Exception error) throws E {
        throw (E) error;
    }
}
