package io.lakefeed.protobuf;

import static io.lakefeed.protobuf.ProtoTokens.wrong;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The names and numbers that one message, enum or file uses; refuses what protoc refuses, such as duplicates.
 *
 * <p>A text can reserve names and numbers after the fields that use them, so {@link #close} checks reserved names and
 * numbers at the end.
 */
final class ProtoScope {
    static final int LARGEST_NUMBER = (1 << 29) - 1;

    /** The first of the numbers that are reserved for Protobuf's own implementation. */
    private static final int FIRST_INTERNAL = 19_000;

    private static final int LAST_INTERNAL = 19_999;

    private record Range(int start, int end, String purpose, int line) {
        @Override
        public String toString() {
            return start == end ? String.valueOf(start) : start + " to " + end;
        }
    }

    private record Numbered(String name, int number, int line) {}

    private final String owner;
    private final Map<String, Integer> names = new HashMap<>();
    private final Map<String, Integer> reservedNames = new LinkedHashMap<>();
    private final TreeMap<Integer, Range> ranges = new TreeMap<>();
    private final List<Numbered> numbered = new ArrayList<>();
    private final Map<Integer, Numbered> byNumber = new HashMap<>();
    private SchemaException duplicate;

    /** Creates a scope; its errors name {@code owner}, such as {@code message Trip}. */
    ProtoScope(String owner) {
        this.owner = owner;
    }

    void define(String name, int line) {
        Integer before = names.putIfAbsent(name, line);
        if (before != null) {
            throw wrong(line, "the name " + name + " is used twice in " + owner + ", before on line " + before
                    + ": rename one of the two");
        }
    }

    void number(String name, int number, int line) {
        requireFieldNumber(number, name, line);
        add(name, number, line);
        if (duplicate != null) {
            throw duplicate;
        }
    }

    static void requireFieldNumber(int number, String name, int line) {
        if (number < 1 || number > LARGEST_NUMBER || number >= FIRST_INTERNAL && number <= LAST_INTERNAL) {
            throw wrong(line, "the field " + name + " cannot have the number " + number + ": use 1 to "
                    + LARGEST_NUMBER + ", but for " + FIRST_INTERNAL + " to " + LAST_INTERNAL);
        }
    }

    /** Adds an enum's value; {@link #checkAlias} later decides if two values may have the same number. */
    void value(String name, int number, int line) {
        add(name, number, line);
    }

    private void add(String name, int number, int line) {
        Numbered added = new Numbered(name, number, line);
        Numbered before = byNumber.putIfAbsent(number, added);
        if (before != null && duplicate == null) {
            duplicate = wrong(line, before.name + " and " + name + " of " + owner + " have the number " + number
                    + ": change one of the two");
        }
        numbered.add(added);
    }

    /** Refuses equal numbers without {@code allow_alias}, and {@code allow_alias} without equal numbers. */
    void checkAlias(ProtoOptions.Option option) {
        if (option == null) {
            if (duplicate != null) {
                throw duplicate;
            }
        } else if (!option.value().equals("true") || duplicate == null) {
            throw wrong(option.line(), "allow_alias of " + owner
                    + " is only for values that have one number, and then true: remove it");
        }
    }

    /** Reserves the numbers from first to last, both included; {@code purpose} gives the reason in errors. */
    void reserve(int start, int end, String purpose, int line) {
        Range range = new Range(start, end, purpose, line);
        if (end < start) {
            throw wrong(line, "the range " + range + " of " + owner + " is empty:"
                    + " write the smaller number first");
        }
        Map.Entry<Integer, Range> other = ranges.floorEntry(end);
        if (other != null && other.getValue().end >= start) {
            throw wrong(line, "the ranges " + other.getValue() + " and " + range + " of " + owner
                    + " overlap: remove the numbers from one of the two");
        }
        ranges.put(start, range);
    }

    void reserve(String name, int line) {
        if (reservedNames.putIfAbsent(name, line) != null) {
            throw wrong(line, "the name " + name + " is reserved twice in " + owner + ": remove one of the two");
        }
    }

    void close() {
        for (Numbered each : numbered) {
            if (reservedNames.containsKey(each.name)) {
                throw wrong(each.line, owner + " uses the name " + each.name + ", which it reserves on line "
                        + reservedNames.get(each.name) + ": use another one");
            }
            Map.Entry<Integer, Range> range = ranges.floorEntry(each.number);
            if (range != null && range.getValue().end >= each.number) {
                throw wrong(each.line, each.name + " of " + owner + " has the number " + each.number + ", which is "
                        + range.getValue().purpose + " on line " + range.getValue().line + ": use another one");
            }
        }
    }
}
