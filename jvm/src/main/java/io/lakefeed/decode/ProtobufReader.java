package io.lakefeed.decode;

import io.lakefeed.protobuf.Malformed;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoTypes;
import io.lakefeed.protobuf.SchemaException;
import io.lakefeed.protobuf.WireInput;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * Reads Protobuf messages. After Confluent's header come the message indexes, which locate the message in the schema:
 * the number of indexes, and then the indexes, all as zigzag varints. A single 0 is short for the first message.
 *
 * @see <a
 *     href="https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format">
 *     the wire format</a>
 */
final class ProtobufReader extends RecordReader {
    private static final List<Integer> FIRST = List.of(0);

    private final Writers<ProtoTypes> writers;
    private final Schema readerSchema;
    private final Acceptance accept;
    private final StructType type;
    private final WireInput input = new WireInput();
    private final Map<Key, Object> plans = new HashMap<>();
    private Key lastKey;
    private ProtobufPlan last;

    private record Key(int schemaId, List<Integer> indexes) {}

    /** Creates a reader of records with a header, whose schemas come from {@code writers}. */
    ProtobufReader(Schema readerSchema, StructType type, Writers<ProtoTypes> writers, Acceptance accept) {
        super(writers);
        this.accept = accept;
        this.readerSchema = readerSchema;
        this.type = type;
        this.writers = writers;
    }

    /** Creates a reader of messages of one type, without a header. */
    ProtobufReader(Schema readerSchema, StructType type, ProtoMessage writer) {
        this(readerSchema, type, null, Acceptance.ANY);
        this.last = ProtobufPlan.of(writer, readerSchema, type, budget);
    }

    /** Returns true, because a message without set fields has no bytes. */
    @Override
    boolean takesEmpty() {
        return true;
    }

    @Override
    protected InternalRow value(byte[] record, int from, int schemaId) {
        input.over(record, from);
        return value(writers == null ? last : planOf(schemaId, indexes()));
    }

    @Override
    InternalRow value(byte[] record, HeaderIds.Named schema) {
        List<Integer> indexes = FIRST;
        byte[] header = schema.header().value();
        if (header.length > schema.end()) {
            input.over(header, schema.end());
            indexes = indexes();
        }
        ProtobufPlan plan = planOf(schema.id(), indexes);
        input.over(record, 0);
        return value(plan);
    }

    private InternalRow value(ProtobufPlan plan) {
        Object[] row = plan.fresh();
        plan.read(input, row, 0, 0);
        return new GenericInternalRow(plan.finished(row));
    }

    private List<Integer> indexes() {
        long count = input.zigzag();
        if (count == 0) {
            return FIRST;
        }
        if (count < 0 || count > WireInput.DEEPEST) {
            throw new Malformed("the header claims " + count + " message indexes");
        }
        List<Integer> indexes = new ArrayList<>((int) count);
        for (long each = 0; each < count; each++) {
            long index = input.zigzag();
            indexes.add(index == (int) index ? (int) index : -1);
        }
        return indexes;
    }

    private ProtobufPlan planOf(int schemaId, List<Integer> indexes) {
        if (lastKey != null && lastKey.schemaId == schemaId && lastKey.indexes.equals(indexes)) {
            return last;
        }
        Key key = new Key(schemaId, indexes);
        Object plan = plans.get(key);
        if (plan == null) {
            plan = newPlan(key);
            plans.put(key, plan);
        }
        if (plan instanceof String why) {
            throw new BadRecord(why);
        }
        lastKey = key;
        last = (ProtobufPlan) plan;
        return last;
    }

    /** Returns a plan, or a String with the reason why messages of this type are refused. */
    private Object newPlan(Key key) {
        ProtoMessage message = writers.schema(key.schemaId).message(key.indexes);
        if (!isReaders(message.name())) {
            return "the record is a " + message.fullName() + ", but the table's rows are " + readerSchema.getFullName();
        }
        String why = accept.refusal(ProtobufAvro.of(message), readerSchema);
        if (why != null) {
            return why;
        }
        try {
            return ProtobufPlan.of(message, readerSchema, type, budget);
        } catch (SchemaException | BadRecord unfit) {
            return unfit.getMessage();
        }
    }

    /** Returns whether this is the name, or an alias, of the reader's record, without namespaces, as in Avro. */
    private boolean isReaders(String name) {
        return readerSchema.getName().equals(name)
                || readerSchema.getAliases().stream().anyMatch(alias -> alias.substring(alias.lastIndexOf('.') + 1).equals(name));
    }
}
