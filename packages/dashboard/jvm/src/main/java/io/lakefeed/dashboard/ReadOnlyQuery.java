package io.lakefeed.dashboard;

import io.lakefeed.query.Statements;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.ExpressionWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WithWindowDefinition;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses SQL that does more than read: statements that change tables, settings or the session, scripts, and functions
 * that call any method of the JVM.
 *
 * <p>The parsed statement is checked before its analysis, because EXECUTE IMMEDIATE runs during analysis. Only
 * operators that are known to read only are accepted, so that statements of later Spark versions are refused.
 */
public final class ReadOnlyQuery {
    private static final Set<String> OPERATORS = Set.of("""
            Aggregate AsOfJoin Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LocalLimit
            LocalRelation Offset OneRowRelation PipeOperator Pivot Project RelationTimeTravel Repartition
            RepartitionByExpression ResolvedInlineTable Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving
            UnresolvedHint UnresolvedInlineTable UnresolvedRelation UnresolvedSubqueryColumnAliases
            UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith Window WithWindowDefinition""".split("\\s+"));

    /** Functions that can call any static method, such as {@code System.exit}. */
    private static final Set<String> REFLECTIVE = Set.of("reflect", "try_reflect", "java_method");

    private ReadOnlyQuery() {}

    /**
     * Returns the name of Spark's operator or function that does more than read; null if the statement only reads.
     *
     * @throws AnalysisException if Spark cannot parse the text
     */
    public static String refusal(SparkSession spark, String sql) throws AnalysisException {
        return refusal(Statements.plan(spark, sql));
    }

    static String refusal(LogicalPlan plan) {
        String name = plan.getClass().getSimpleName().replace("$", "");
        if (!OPERATORS.contains(name)) {
            return name;
        }
        List<Expression> expressions = new ArrayList<>(CollectionConverters.asJava(plan.expressions()));
        if (plan instanceof WithWindowDefinition named) {
            // expressions() does not return the expressions in this map.
            expressions.addAll(CollectionConverters.asJava(named.windowDefinitions()).values());
        }
        Stream<String> inside = Stream.concat(
                expressions.stream().map(ReadOnlyQuery::refusal),
                CollectionConverters.asJava(plan.children()).stream().map(ReadOnlyQuery::refusal));
        // innerChildren(), and not children(), returns the queries of WITH.
        Stream<String> inner = CollectionConverters.asJava(plan.innerChildren()).stream()
                .map(each -> each instanceof LogicalPlan query ? refusal(query) : each.nodeName());
        return first(Stream.concat(inside, inner));
    }

    private static String first(Stream<String> refusals) {
        return refusals.filter(Objects::nonNull).findFirst().orElse(null);
    }

    private static String refusal(Expression expression) {
        if (expression instanceof ExpressionWithUnresolvedIdentifier) {
            // IDENTIFIER('…') is refused, because the name of the function is known only after the analysis.
            return "IDENTIFIER";
        }
        if (expression instanceof UnresolvedFunction function) {
            String name = function.nameParts().last().toLowerCase(Locale.ROOT);
            if (REFLECTIVE.contains(name)) {
                return name;
            }
        }
        boolean isQuery = expression instanceof PlanExpression<?> subquery && subquery.plan() instanceof LogicalPlan;
        String found = isQuery ? refusal((LogicalPlan) ((PlanExpression<?>) expression).plan()) : null;
        return found != null
                ? found
                : first(CollectionConverters.asJava(expression.children()).stream().map(ReadOnlyQuery::refusal));
    }
}
