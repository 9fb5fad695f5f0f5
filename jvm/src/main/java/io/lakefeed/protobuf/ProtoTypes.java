package io.lakefeed.protobuf;

import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The message types of a file and of the files that it refers to. */
public final class ProtoTypes {
    private final Map<String, Object> byName = new HashMap<>();
    private final Map<String, ProtoMessage> named = new LinkedHashMap<>();
    private final ProtoFile main;

    private ProtoTypes(ProtoFile main) {
        this.main = main;
    }

    /** Returns the types of {@code main}, whose fields can have types of {@code others} and Protobuf's known types. */
    public static ProtoTypes of(ProtoFile main, Iterable<ProtoFile> others) {
        ProtoTypes types = new ProtoTypes(main);
        types.add(main, types.named);
        for (ProtoFile other : others) {
            types.add(other, new HashMap<>());
        }
        for (ProtoFile known : KnownTypes.FILES) {
            types.add(known, new HashMap<>());
        }
        return types;
    }

    /**
     * Returns the types of a descriptor set, whose last file is the main file, as protoc writes it.
     *
     * @throws SchemaException if the bytes are not a descriptor set
     */
    public static ProtoTypes ofSet(byte[] set) {
        List<ProtoFile> files = List.copyOf(ProtoDescriptor.files(set).values());
        ProtoFile last = files.get(files.size() - 1);
        ProtoTypes types = of(last, List.of());
        files.forEach(file -> types.add(file, types.named));
        return types;
    }

    /**
     * Parses a schema from a registry: text, or the file descriptor in Base64 that Confluent's Python client registers.
     *
     * @throws SchemaException if {@code schema} is neither
     */
    public static ProtoFile read(String schema) {
        String packed = schema.strip();
        if (!packed.isEmpty() && packed.chars().allMatch(ProtoTypes::isBase64)) {
            try {
                return ProtoDescriptor.file(Base64.getMimeDecoder().decode(packed));
            } catch (IllegalArgumentException none) {
                throw new SchemaException("neither .proto text nor a file descriptor in Base64");
            }
        }
        return ProtoParser.parse(schema);
    }

    private static boolean isBase64(int c) {
        return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || "+/=\r\n".indexOf(c) >= 0;
    }

    /** Returns the messages of the main file or descriptor set by full name, nested ones included. */
    public Map<String, ProtoMessage> messages() {
        return named;
    }

    /** Returns the full names of the main file's top-level messages, in the order of the file. */
    public List<String> topLevel() {
        String prefix = prefix(main.packageName());
        return main.messages().stream().map(each -> prefix + each.name()).toList();
    }

    /**
     * Returns the main file's message with this name, or its first message if {@code name} is null.
     *
     * @param name the name, with or without the package; or null
     * @throws SchemaException if there is no such message; the error lists the existing messages
     */
    public ProtoMessage message(String name) {
        if (name == null) {
            if (main.messages().isEmpty()) {
                throw new SchemaException("it defines no message");
            }
            return message(List.of(0));
        }
        ProtoMessage found = named.get(name);
        if (found == null) {
            found = named.get(prefix(main.packageName()) + name);
        }
        if (found == null) {
            throw new SchemaException("no message " + name + "; there are: " + String.join(", ", topLevel()));
        }
        return found;
    }

    /**
     * Returns the message at Confluent's message indexes: the index of a top-level message, then of a message inside
     * that message, and so on.
     *
     * @throws Malformed if there is no message at the indexes
     */
    public ProtoMessage message(List<Integer> indexes) {
        List<ProtoFile.Message> siblings = main.messages();
        StringBuilder name = new StringBuilder(main.packageName());
        for (int index : indexes) {
            if (index < 0 || index >= siblings.size()) {
                throw new Malformed("message indexes " + indexes + " mean no message of the schema");
            }
            ProtoFile.Message message = siblings.get(index);
            name.append(name.isEmpty() ? "" : ".").append(message.name());
            siblings = message.messages();
        }
        return named.get(name.toString());
    }

    public List<Integer> indexes(ProtoMessage message) {
        List<Integer> indexes = new ArrayList<>();
        List<ProtoFile.Message> siblings = main.messages();
        String rest = message.fullName().substring(prefix(main.packageName()).length());
        for (String part : rest.split("\\.")) {
            for (int index = 0; index < siblings.size(); index++) {
                if (siblings.get(index).name().equals(part)) {
                    indexes.add(index);
                    siblings = siblings.get(index).messages();
                    break;
                }
            }
        }
        return indexes;
    }

    /**
     * Returns the message or enum that a name inside {@code scope} refers to; null if there is no such type.
     *
     * <p>As in protoc, the innermost message that contains the name's first part decides, even if the rest of the name
     * is not in it.
     */
    Object resolve(String name, String scope) {
        if (name.startsWith(".")) {
            return byName.get(name.substring(1));
        }
        String first = name.substring(0, name.indexOf('.') < 0 ? name.length() : name.indexOf('.'));
        for (String around = scope; ; around = around.substring(0, Math.max(0, around.lastIndexOf('.')))) {
            Object found = byName.get(prefix(around) + name);
            if (found != null || around.isEmpty() || byName.get(prefix(around) + first) instanceof ProtoMessage) {
                return found;
            }
        }
    }

    /** Returns the main file's messages with their fields, one per line; equal layouts give equal texts. */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        for (ProtoMessage message : named.values()) {
            text.append(message.fullName()).append(message.isMapEntry() ? " (map entry)\n" : "\n");
            for (ProtoMessage.Field field : message.fields()) {
                text.append("  ").append(field).append('\n');
            }
        }
        return text.toString();
    }

    private void add(ProtoFile file, Map<String, ProtoMessage> found) {
        add(prefix(file.packageName()), file.messages(), file.enums(), found);
    }

    private void add(
            String prefix, List<ProtoFile.Message> messages, List<ProtoFile.Enum> enums, Map<String, ProtoMessage> found) {
        for (ProtoFile.Enum each : enums) {
            byName.putIfAbsent(prefix + each.name(), each);
        }
        for (ProtoFile.Message each : messages) {
            String name = prefix + each.name();
            ProtoMessage message = new ProtoMessage(this, name, each);
            byName.putIfAbsent(name, message);
            found.putIfAbsent(name, message);
            add(name + ".", each.messages(), each.enums(), found);
        }
    }

    private static String prefix(String scope) {
        return scope.isEmpty() ? "" : scope + ".";
    }
}
