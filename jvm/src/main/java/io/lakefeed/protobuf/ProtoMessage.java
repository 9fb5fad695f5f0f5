package io.lakefeed.protobuf;

import io.lakefeed.protobuf.ProtoFile.Presence;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** A message type. The types of its fields are resolved when they are first used. */
public final class ProtoMessage {
    private final ProtoTypes types;
    private final String fullName;
    private final ProtoFile.Message written;
    private List<Field> fields;

    /**
     * A field.
     *
     * @param message the type of the values if {@code type} is {@code MESSAGE}, otherwise null
     * @param symbols the values if {@code type} is {@code ENUM}, otherwise empty; the first is the default
     * @param oneof the oneof's name, or null
     */
    public record Field(
            String name,
            int number,
            ProtoType type,
            Presence presence,
            String oneof,
            boolean delimited,
            ProtoMessage message,
            List<ProtoFile.Value> symbols) {

        public boolean isMap() {
            return presence == Presence.REPEATED && message != null && message.isMapEntry();
        }

        @Override
        public String toString() {
            String of = message != null ? message.fullName() : symbols.isEmpty() ? "" : symbols.toString();
            return number + " " + name + ": " + presence + " " + type + " " + of
                    + (oneof == null ? "" : " in " + oneof) + (delimited ? " delimited" : "");
        }
    }

    ProtoMessage(ProtoTypes types, String fullName, ProtoFile.Message written) {
        this.types = types;
        this.fullName = fullName;
        this.written = written;
    }

    /** Returns the name with its package and the names of the messages around it: {@code a.b.Trip.Stop}. */
    public String fullName() {
        return fullName;
    }

    /** Returns the name without its package and the names of the messages around it. */
    public String name() {
        return written.name();
    }

    public boolean isMapEntry() {
        return written.mapEntry();
    }

    /**
     * Returns the fields in the order of the file.
     *
     * @throws SchemaException if a field's type is not defined, or two fields have the same number
     */
    public synchronized List<Field> fields() {
        if (fields == null) {
            List<Field> found = new ArrayList<>();
            Set<Integer> numbers = new HashSet<>();
            for (ProtoFile.Field field : written.fields()) {
                if (field.number() < 1 || !numbers.add(field.number())) {
                    throw new SchemaException(field.inMessage(fullName) + " cannot have the number " + field.number()
                            + ": use another one");
                }
                found.add(resolved(field));
            }
            fields = List.copyOf(found);
        }
        return fields;
    }

    private Field resolved(ProtoFile.Field field) {
        ProtoType scalar = ProtoType.scalar(field.type());
        if (scalar != null) {
            return of(field, scalar, field.presence(), false, null, List.of());
        }
        Object found = types.resolve(field.type(), fullName);
        if (found instanceof ProtoMessage message) {
            // A message field always has presence, because a missing message is not the same as an empty one.
            Presence presence = field.presence() == Presence.IMPLICIT && !isMapEntry()
                    ? Presence.EXPLICIT
                    : field.presence();
            // The entries and values of a map are never encoded as groups.
            boolean delimited = field.delimited() && !message.isMapEntry() && !isMapEntry();
            return of(field, ProtoType.MESSAGE, presence, delimited, message, List.of());
        }
        if (found instanceof ProtoFile.Enum type) {
            if (type.closed() && field.presence() == Presence.IMPLICIT && !isMapEntry()) {
                throw new SchemaException(field.inMessage(fullName) + " has implicit presence and the closed enum "
                        + type.name() + ": make one of the two explicit or open");
            }
            if (isMapEntry() && !type.values().isEmpty() && type.values().get(0).number() != 0) {
                throw new SchemaException(field.inMessage(fullName) + " is an enum in a map, whose first"
                        + " value has to be 0: add one");
            }
            return of(field, ProtoType.ENUM, field.presence(), false, null, type.values());
        }
        throw new SchemaException(field.inMessage(fullName) + " has the type " + field.type()
                + ", which is defined nowhere: add it, or the reference to its file");
    }

    private static Field of(
            ProtoFile.Field field,
            ProtoType type,
            Presence presence,
            boolean delimited,
            ProtoMessage message,
            List<ProtoFile.Value> symbols) {
        return new Field(field.name(), field.number(), type, presence, field.oneof(), delimited, message, symbols);
    }
}
