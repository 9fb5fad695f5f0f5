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
 * Passes SQL to Spark's parser unchanged; no other class calls the parser.
 *
 * <p>Spark replaces {@code ${name}} by settings, system properties and environment variables of the driver in each text
 * that it parses, even in names and literals, and offers no escape. So the parser runs with a copy of the session's
 * settings in which the replacement is off.
 */
public final class Statements {
    private Statements() {}

    /** Runs a statement with named parameters. A query is only planned; it runs when the result is read. */
    public static Dataset<Row> run(org.apache.spark.sql.SparkSession spark, String text, Map<String, Object> values) {
        return asWritten(spark, !values.isEmpty(), () -> spark.sql(text, values));
    }

    public static Column expression(org.apache.spark.sql.SparkSession spark, String text) {
        return asWritten(spark, false, () -> ExpressionUtils.column(parser(spark).parseExpression(text)));
    }

    /** Returns the parsed statement, before its analysis. */
    public static LogicalPlan plan(org.apache.spark.sql.SparkSession spark, String text) {
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
            // With this setting on, Spark would not read the escapes with which it writes the values into the text.
            settings.setConfString("spark.sql.parser.escapedStringLiterals", "false");
        }
        // Spark refuses parameters in table properties if the next setting is on.
        settings.setConfString("spark.sql.legacy.parameterSubstitution.constantsOnly", "false");
        return SQLConf$.MODULE$.withExistingConf(settings, () -> {
            try {
                return act.call();
            } catch (Exception error) {
                throw Statements.<RuntimeException>asItIs(error);
            }
        });
    }

    /** Throws a checked exception of Spark, such as ParseException, from a method that does not declare it. */
    @SuppressWarnings("unchecked")
    private static <E extends Exception> E asItIs(Exception error) throws E {
        throw (E) error;
    }
}
