package io.lakefeed.decode;

import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoMessage.Field;
import io.lakefeed.protobuf.ProtoType;
import io.lakefeed.protobuf.WireInput;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads messages as JSON text if a column has no type for them: a message inside a message of the same type, and {@code
 * google.protobuf.Struct}, {@code Value} and {@code ListValue}, which represent JSON.
 *
 * <p>An unfinished message is an array with an item for each field: a scalar, an inner message's array, a list, or a
 * map. Unset fields get their zero values when the text is written.
 */
final class ProtobufJson implements ProtobufNested.ProtobufPart {
    private static final String STRUCT = "google.protobuf.Struct";
    private static final String VALUE = "google.protobuf.Value";
    private static final String LIST = "google.protobuf.ListValue";
    /** The bytes of memory of a list or a map; the next constant has those of an entry in a map. */
    private static final int COLLECTION = 112;

    private static final int ENTRY = 64;

    private final ProtoMessage message;
    private final MemoryBudget budget;
    private final JsonText text;
    private final Member[] members;
    private final ProtobufPlan plan;

    ProtobufJson(ProtoMessage message, MemoryBudget budget) {
        this(message, budget, new JsonText(budget));
    }

    private ProtobufJson(ProtoMessage message, MemoryBudget budget, JsonText text) {
        this.message = message;
        this.budget = budget;
        this.text = text;
        List<Field> fields = message.fields();
        members = new Member[fields.size()];
        plan = new ProtobufPlan(message, members.length, budget);
        Map<String, Integer> places = new HashMap<>();
        fields.forEach(field -> places.put(field.name(), places.size()));
        for (int at = 0; at < members.length; at++) {
            members[at] = new Member(at, fields.get(at));
            plan.add(fields.get(at), members[at]::read, places);
        }
    }

    /** Returns whether a message of this type represents any JSON value. */
    static boolean isJson(ProtoMessage message) {
        return List.of(STRUCT, VALUE, LIST).contains(message.fullName());
    }

    @Override
    public Object begun() {
        return plan.fresh();
    }

    @Override
    public int cost() {
        return MemoryBudget.OBJECT + 4 * members.length;
    }

    @Override
    public void read(WireInput input, Object unfinished, int group, int depth) {
        plan.read(input, (Object[]) unfinished, group, depth);
    }

    @Override
    public Object finished(Object unfinished) {
        text.begin();
        write((Object[]) unfinished);
        return text.taken();
    }

    private void write(Object[] set) {
        switch (message.fullName()) {
            case STRUCT, LIST -> members[0].write(set[0]);
            case VALUE -> writeValue(set);
            default -> {
                if (ProtobufNested.isTimestamp(message)) {
                    text.string(instant((Long) set[0], (Long) set[1]).getBytes(StandardCharsets.US_ASCII));
                } else if (ProtobufNested.isWrapper(message)) {
                    members[0].write(set[0]);
                } else {
                    writeFields(set);
                }
            }
        }
    }

    private Member member(int number) {
        int at = 0;
        while (members[at].field.number() != number) {
            at++;
        }
        return members[at];
    }

    private void writeValue(Object[] set) {
        for (Member kind : members) {
            if (set[kind.at] != null && kind.field.number() != 1) {
                kind.write(set[kind.at]);
                return;
            }
        }
        text.plain("null");
    }

    private static String instant(Long seconds, Long nanos) {
        long second = seconds == null ? 0 : seconds;
        int nano = nanos == null ? 0 : nanos.intValue();
        ProtobufNested.requireInRange(second, nano);
        return Instant.ofEpochSecond(second, nano).toString();
    }

    private void writeFields(Object[] set) {
        text.open('{');
        for (Member member : members) {
            Presence presence = member.field.presence();
            if (set[member.at] != null || presence == Presence.REPEATED || presence == Presence.IMPLICIT) {
                text.name(member.name);
                try {
                    member.write(set[member.at]);
                } catch (RuntimeException bad) {
                    throw BadRecord.of(bad).at(member.field.name());
                }
            }
        }
        text.close('}');
    }

    /** Reads and writes the values of one field. */
    private final class Member {
        final int at;
        final Field field;
        final byte[] name;
        /** The reader of a scalar field; null if the field is a message. */
        private final ProtobufValue scalar;
        private final Object zero;
        private final byte[] zeroText;
        private final String zeroPlain;
        /** The reader of a message field; created at the first use, because message types can contain each other. */
        private ProtobufJson inner;

        Member(int at, Field field) {
            this.at = at;
            this.field = field;
            this.name = field.name().getBytes(StandardCharsets.UTF_8);
            this.scalar = field.type() == ProtoType.MESSAGE ? null : ProtobufValue.of(field, natural(field.type()));
            this.zero = scalar == null ? null : scalar.zero();
            this.zeroPlain = String.valueOf(zero);
            this.zeroText = zero instanceof UTF8String string ? string.getBytes() : null;
        }

        private ProtobufJson inner() {
            if (inner == null) {
                inner = new ProtobufJson(field.message(), budget, text);
            }
            return inner;
        }

        @SuppressWarnings("unchecked")
        void read(WireInput input, int tag, Object[] set, int depth) {
            if (field.presence() != Presence.REPEATED) {
                set[at] = one(input, tag, set[at], depth);
            } else if (field.isMap()) {
                if (set[at] == null) {
                    budget.charge(COLLECTION);
                    set[at] = new LinkedHashMap<UTF8String, Object>();
                }
                budget.charge(ENTRY);
                Object[] entry = (Object[]) one(input, tag, null, depth);
                Member key = inner().member(1);
                Object found = entry[key.at] != null ? entry[key.at] : key.zero;
                UTF8String name = found instanceof UTF8String already ? already : UTF8String.fromString(found.toString());
                ((Map<UTF8String, Object>) set[at]).put(name, entry);
            } else {
                if (set[at] == null) {
                    budget.charge(COLLECTION);
                    set[at] = new ArrayList<>(4);
                }
                add(input, tag, (List<Object>) set[at], depth);
            }
        }

        private void add(WireInput input, int tag, List<Object> list, int depth) {
            try {
                if ((tag & 7) == WireInput.LENGTH && field.type().packable()) {
                    int outer = input.limit();
                    while (!input.atEnd()) {
                        list.add(scalar.read(input));
                    }
                    input.unlimit(outer);
                } else {
                    budget.charge(2 * MemoryBudget.OBJECT);
                    list.add(one(input, tag, null, depth));
                }
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).item(list.size());
            }
        }

        private Object one(WireInput input, int tag, Object before, int depth) {
            if (scalar != null) {
                ProtobufNested.requireWireType(field.type().wireType(), tag, input);
                return scalar.read(input);
            }
            WireInput.requireDepth(depth + 1);
            ProtobufNested.requireWireType(field.delimited() ? WireInput.START_GROUP : WireInput.LENGTH, tag, input);
            Object unfinished = before;
            if (unfinished == null) {
                budget.charge(inner().cost());
                unfinished = inner().begun();
            }
            if (field.delimited()) {
                inner().read(input, unfinished, field.number(), depth + 1);
            } else {
                int outer = input.limit();
                inner().read(input, unfinished, 0, depth + 1);
                input.unlimit(outer);
            }
            return unfinished;
        }

        /** Writes the field's value; if {@code value} is null, the zero value of the unset field. */
        @SuppressWarnings("unchecked")
        void write(Object value) {
            if (field.isMap()) {
                Member values = inner().member(2);
                text.open('{');
                if (value != null) {
                    ((Map<UTF8String, Object>) value).forEach((key, entry) -> {
                        text.name(key.getBytes());
                        values.writeOne(((Object[]) entry)[values.at]);
                    });
                }
                text.close('}');
            } else if (field.presence() == Presence.REPEATED) {
                text.open('[');
                if (value != null) {
                    for (Object each : (List<Object>) value) {
                        text.next();
                        writeOne(each);
                    }
                }
                text.close(']');
            } else {
                writeOne(value);
            }
        }

        private void writeOne(Object value) {
            if (scalar == null) {
                inner().write((Object[]) (value == null ? inner().begun() : value));
                return;
            }
            if (value == null && zeroText != null) {
                text.string(zeroText);
                return;
            }
            Object found = value == null ? zero : value;
            if (found instanceof Long whole) {
                text.number(whole);
            } else if (found instanceof UTF8String string) {
                text.string(string.getBytes());
            } else if (found instanceof byte[] binary) {
                text.base64(binary);
            } else if (found instanceof Double || found instanceof Float) {
                text.real((Number) found);
            } else {
                text.plain(found == zero ? zeroPlain : found.toString());
            }
        }
    }

    private static DataType natural(ProtoType type) {
        return switch (type) {
            case DOUBLE -> DataTypes.DoubleType;
            case FLOAT -> DataTypes.FloatType;
            case BOOL -> DataTypes.BooleanType;
            case BYTES -> DataTypes.BinaryType;
            case STRING, ENUM -> DataTypes.StringType;
            case UINT64, FIXED64 -> DataTypes.createDecimalType(20, 0);
            default -> DataTypes.LongType;
        };
    }
}
