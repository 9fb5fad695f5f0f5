package io.lakefeed.query;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.Deduplicate;
import org.apache.spark.sql.catalyst.plans.logical.DeduplicateWithinWatermark;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.FlatMapGroupsInPandasWithState;
import org.apache.spark.sql.catalyst.plans.logical.FlatMapGroupsWithState;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LeafNode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionOperation;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.TransformWithState;
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.streaming.InternalOutputModes;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation;
import org.apache.spark.sql.streaming.OutputMode;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.runtime.BoxedUnit;

/**
 * Finds the state that a streaming query keeps between micro-batches, in the analysed plan of its DataFrame.
 *
 * <p>A transform with state must be part of the streaming query. A stateless transform may be applied to each
 * micro-batch separately. The state of a TransformWithState depends on the user's code, which {@link #processors}
 * returns if it is in Python.
 */
public final class StreamingPlan {
    private StreamingPlan() {}

    /**
     * Describes the state of each stateful operator, in the order of the plan: {@code aggregate: by zip string;
     * count(1) bigint}. If the descriptions are equal, a new plan can use the old state.
     */
    public static List<String> state(Dataset<?> frame) {
        List<String> found = new ArrayList<>();
        visit(frame.queryExecution().analyzed(), plan -> {
            String state = kept(plan);
            if (state != null) {
                found.add(state);
            }
        });
        return found;
    }

    /** Returns the pickled function of each "transformWithState in Python" in {@link #state}, in the same order. */
    public static List<byte[]> processors(Dataset<?> frame) {
        List<byte[]> found = new ArrayList<>();
        visit(frame.queryExecution().analyzed(), plan -> {
            if (plan instanceof TransformWithStateInPySpark each && each.functionExpr() instanceof PythonUDF function) {
                found.add((byte[]) function.func().command().toArray(ClassTag.Byte()));
            }
        });
        return found;
    }

    /**
     * Returns the filter of each scan of the plan's one source as text; empty for a scan without a filter. There may be
     * projections between scan and filter, as {@code lakefeed check} and test cases replace Kafka's source. Returns
     * null for two sources, because their batches would end at different records, and for two scans with the same
     * filter.
     */
    public static List<String> readings(Dataset<?> frame) {
        Set<LogicalPlan> sources = new HashSet<>();
        List<String> filters = new ArrayList<>();
        readings(frame.queryExecution().analyzed(), "", sources, filters);
        boolean apart = Set.copyOf(filters).size() == filters.size();
        return sources.size() <= 1 && apart ? filters : null;
    }

    private static void readings(LogicalPlan plan, String filter, Set<LogicalPlan> sources, List<String> filters) {
        if (!plan.isStreaming()) {
            return;
        }
        if (plan instanceof LeafNode) {
            // If a plan joins two scans of a V1 source, one of them gets new column ids, so only the canonical forms
            // are equal. Only test cases join V1 sources; there each file is a micro-batch, so both scans end at the
            // same records.
            sources.add(plan instanceof StreamingRelation ? plan.canonicalized() : plan);
            filters.add(filter);
        }
        String own = plan instanceof Filter each ? each.condition().sql() : plan instanceof Project ? filter : "";
        CollectionConverters.asJava(plan.children()).forEach(child -> readings(child, own, sources, filters));
    }

    /** Returns whether each record becomes at most one row: the plan only projects and filters. */
    public static boolean onePerRecord(Dataset<?> frame) {
        LogicalPlan plan = frame.queryExecution().analyzed();
        return plan.find(each -> !(each instanceof Project
                        || each instanceof Filter
                        || each instanceof SubqueryAlias
                        || each instanceof View
                        || each instanceof WithCTE
                        || each instanceof CTERelationDef
                        || each instanceof RepartitionOperation
                        || each instanceof EventTimeWatermark
                        || each instanceof LeafNode))
                .isEmpty();
    }

    /**
     * Throws Spark's {@code AnalysisException} with the reason if Spark cannot run the plan as a stream.
     *
     * @param outputMode append, update or complete
     */
    public static void check(Dataset<?> frame, String outputMode) {
        LogicalPlan plan = frame.queryExecution().analyzed();
        OutputMode mode = InternalOutputModes.apply(outputMode);
        UnsupportedOperationChecker.checkForStreaming(plan, mode);
        UnsupportedOperationChecker.checkStreamingQueryGlobalWatermarkLimit(plan, mode);
    }

    /** Calls {@code visitor} for each operator of a plan that works on a stream, beginning at the sources. */
    private static void visit(LogicalPlan plan, Consumer<LogicalPlan> visitor) {
        if (plan.isStreaming()) {
            CollectionConverters.asJava(plan.children()).forEach(child -> visit(child, visitor));
            visitor.accept(plan);
        }
    }

    /** Describes an operator's state; null if the operator is stateless. */
    private static String kept(LogicalPlan plan) {
        if (plan instanceof Aggregate each) {
            return "aggregate: by " + expressions(each.groupingExpressions(), plan) + "; " + computed(each);
        }
        if (plan instanceof DeduplicateWithinWatermark each) {
            return "deduplicate within the watermark: by " + expressions(each.keys(), plan);
        }
        if (plan instanceof Deduplicate each) {
            return "deduplicate: by " + expressions(each.keys(), plan);
        }
        if (plan instanceof Distinct each) {
            return "distinct: by " + expressions(each.output(), plan);
        }
        if (plan instanceof Join each && each.left().isStreaming() && each.right().isStreaming()) {
            String on = each.condition().isDefined() ? " on " + each.condition().get().sql() : "";
            return each.joinType().sql().toLowerCase(Locale.ROOT) + " join of streams" + on + ": "
                    + expressions(each.left().output(), plan) + " with " + expressions(each.right().output(), plan);
        }
        if (plan instanceof FlatMapGroupsWithState each) {
            return "flatMapGroupsWithState: by " + expressions(each.groupingAttributes(), plan);
        }
        if (plan instanceof FlatMapGroupsInPandasWithState each) {
            return "applyInPandasWithState: by " + expressions(each.groupingAttributes(), plan) + "; "
                    + each.stateType().sql();
        }
        if (plan instanceof TransformWithState each) {
            return "transformWithState: by " + expressions(each.groupingAttributes(), plan);
        }
        if (plan instanceof TransformWithStateInPySpark each) {
            var keys = each.child().output().toList().take(each.groupingAttributesLen());
            return "transformWithState in Python: by " + expressions(keys, plan) + "; time mode " + each.timeMode();
        }
        return plan instanceof GlobalLimit ? "limit" : null;
    }

    /** Describes the results of an aggregation with their types; the caller describes its keys. */
    private static String computed(Aggregate aggregate) {
        List<String> texts = new ArrayList<>();
        for (NamedExpression each : CollectionConverters.asJava(aggregate.aggregateExpressions())) {
            Expression expression = (Expression) each;
            if (!(expression instanceof Attribute)) {
                texts.add(expression.sql() + " " + expression.dataType().sql());
            }
        }
        return String.join(", ", texts);
    }

    private static String expressions(scala.collection.immutable.Seq<? extends Expression> all, LogicalPlan plan) {
        List<String> texts = new ArrayList<>();
        for (Expression each : CollectionConverters.asJava(all)) {
            String text = each instanceof Attribute attribute
                    ? attribute.name() + definition(attribute, plan)
                    : each.sql();
            texts.add(text + " " + each.dataType().sql());
        }
        return texts.isEmpty() ? "nothing" : String.join(", ", texts);
    }

    /** Returns the expression that computes a column, such as a window: {@code (hittime; 600000000, 300000000)}. */
    private static String definition(Attribute required, LogicalPlan plan) {
        Set<String> columns = new LinkedHashSet<>();
        Set<String> literals = new LinkedHashSet<>();
        plan.foreach(node -> {
            if (node instanceof Project project) {
                for (NamedExpression each : CollectionConverters.asJava(project.projectList())) {
                    if (each instanceof Alias alias && alias.exprId().equals(required.exprId())) {
                        leaves(alias.child(), columns, literals);
                    }
                }
            }
            if (node instanceof Expand expand) {
                List<Attribute> output = CollectionConverters.asJava(expand.output());
                for (int at = 0; at < output.size(); at++) {
                    if (output.get(at).exprId().equals(required.exprId())) {
                        for (var projection : CollectionConverters.asJava(expand.projections())) {
                            leaves(projection.apply(at), columns, literals);
                        }
                    }
                }
            }
            return BoxedUnit.UNIT;
        });
        if (columns.isEmpty()) {
            return "";
        }
        return " (" + String.join(", ", columns) + (literals.isEmpty() ? "" : "; " + String.join(", ", literals)) + ")";
    }

    private static void leaves(Expression expression, Set<String> columns, Set<String> literals) {
        for (Expression leaf : CollectionConverters.asJava(expression.collectLeaves())) {
            if (leaf instanceof Attribute attribute) {
                columns.add(attribute.name());
            } else {
                literals.add(leaf.sql());
            }
        }
    }
}
