package io.lakefeed.decode;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.avro.Schema;

/**
 * Decides whether records of a writer's schema are read: the option {@code schema.accept} of a pipeline file.
 *
 * <p>The decision is made once per schema. Python has the same rule in {@code lakefeed.records.schema.reader}, which
 * decides whether a table follows a schema. A test compares the two rules.
 */
enum Acceptance {
    SAME_RECORD,
    RESOLVABLE,
    ANY;

    /** Returns the rule that a catalog's option names; null names the default rule. */
    static Acceptance of(String option) {
        return option == null ? SAME_RECORD : valueOf(option.toUpperCase(java.util.Locale.ROOT));
    }

    /** Returns the plan for reading {@code writer}'s records; for a refused schema, a plan that refuses each record. */
    AvroStep plan(Schema writer, Schema reader) {
        if (writer.isUnion() && !reader.isUnion()) {
            AvroStep[] branches = writer.getTypes().stream().map(each -> plan(each, reader)).toArray(AvroStep[]::new);
            return new AvroNested.OfUnion(branches);
        }
        String why = refusal(writer, reader);
        return why == null ? AvroPlan.of(writer, reader) : new AvroObjects.Refusal(why);
    }

    /** Returns why records of {@code writer} must not become rows of {@code reader}; null if they may. */
    String refusal(Schema writer, Schema reader) {
        if (this == ANY || writer.getType() != Schema.Type.RECORD) {
            return null;
        }
        if (reader.isUnion()) {
            List<String> refusals = new ArrayList<>();
            for (Schema each : reader.getTypes()) {
                String why = each.getType() == Schema.Type.RECORD ? refusal(writer, each) : "";
                if (why == null) {
                    return null;
                }
                refusals.add(why);
            }
            return refusals.stream().filter(each -> !each.isEmpty()).findFirst().orElse(null);
        }
        return reader.getType() == Schema.Type.RECORD ? refusalOfRecord(writer, reader) : null;
    }

    private String refusalOfRecord(Schema writer, Schema reader) {
        if (!isSameRecord(writer, reader)) {
            return "the record is a " + writer.getFullName() + ", but the table's rows are " + reader.getFullName();
        }
        if (reader.getFields().stream().noneMatch(each -> isIn(writer, each))) {
            return "the record shares no field with the table's rows, which are " + reader.getFullName();
        }
        if (this == RESOLVABLE) {
            for (Schema.Field each : reader.getFields()) {
                if (!each.hasDefaultValue() && !each.schema().isNullable() && !isIn(writer, each)) {
                    return "the record has no field " + each.name() + ", which is required and has no default";
                }
            }
        }
        return null;
    }

    /** Compares names, and aliases of both schemas, without namespaces, as Avro's resolution does. */
    private static boolean isSameRecord(Schema writer, Schema reader) {
        return Stream.concat(Stream.of(reader.getName()), reader.getAliases().stream().map(Acceptance::shortName))
                        .anyMatch(writer.getName()::equals)
                || writer.getAliases().stream().map(Acceptance::shortName).anyMatch(reader.getName()::equals);
    }

    private static String shortName(String full) {
        return full.substring(full.lastIndexOf('.') + 1);
    }

    private static boolean isIn(Schema writer, Schema.Field field) {
        for (Schema.Field each : writer.getFields()) {
            if (each.name().equals(field.name())
                    || field.aliases().contains(each.name())
                    || each.aliases().contains(field.name())) {
                return true;
            }
        }
        return false;
    }
}
