package io.lakefeed.protobuf;

import io.lakefeed.protobuf.ProtoFile.Enum;
import io.lakefeed.protobuf.ProtoFile.Field;
import io.lakefeed.protobuf.ProtoFile.Message;
import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoFile.Value;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.DescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.EnumDescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FieldDescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FieldDescriptorProto.Label;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FieldDescriptorProto.Type;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorSet;
import org.sparkproject.spark_core.protobuf.InvalidProtocolBufferException;

/** Reads compiled schemas (a file descriptor, or a descriptor set) with Spark's copy of protobuf-java. */
public final class ProtoDescriptor {
    private ProtoDescriptor() {}

    /**
     * Returns the files of a descriptor set by their names; {@code protoc --descriptor_set_out} writes such sets.
     *
     * @throws SchemaException if the bytes are not a descriptor set
     */
    public static Map<String, ProtoFile> files(byte[] set) {
        Map<String, ProtoFile> files = new LinkedHashMap<>();
        try {
            FileDescriptorSet.parseFrom(set).getFileList().forEach(file -> files.put(file.getName(), file(file)));
        } catch (InvalidProtocolBufferException broken) {
            throw invalid(broken);
        }
        if (files.isEmpty()) {
            throw new SchemaException("the descriptor set has no file: write one with protoc --descriptor_set_out");
        }
        return files;
    }

    /**
     * Returns the file that a {@code FileDescriptorProto} describes.
     *
     * @throws SchemaException if the bytes are no {@code FileDescriptorProto}
     */
    public static ProtoFile file(byte[] descriptor) {
        try {
            return file(FileDescriptorProto.parseFrom(descriptor));
        } catch (InvalidProtocolBufferException broken) {
            throw invalid(broken);
        }
    }

    private static SchemaException invalid(InvalidProtocolBufferException broken) {
        return new SchemaException("not a Protobuf descriptor: " + broken.getMessage());
    }

    private static ProtoFile file(FileDescriptorProto file) {
        Features features = SparkProtobuf.features(file);
        return new ProtoFile(
                file.getPackage(),
                List.copyOf(file.getDependencyList()),
                messages(file.getMessageTypeList(), features),
                enums(file.getEnumTypeList()));
    }

    private static List<Message> messages(List<DescriptorProto> messages, Features inherited) {
        return messages.stream().map(message -> message(message, inherited)).toList();
    }

    private static Message message(DescriptorProto message, Features inherited) {
        Features features = SparkProtobuf.features(inherited, message.getOptions());
        return new Message(
                message.getName(),
                message.getFieldList().stream().map(field -> field(field, message, features)).toList(),
                messages(message.getNestedTypeList(), features),
                enums(message.getEnumTypeList()),
                message.getOptions().getMapEntry());
    }

    private static Field field(FieldDescriptorProto field, DescriptorProto message, Features inherited) {
        if (!field.hasType()) {
            throw new SchemaException("field " + field.getName() + " has an unknown type");
        }
        Features features = SparkProtobuf.features(inherited, field.getOptions());
        int oneof = field.hasOneofIndex() && !field.getProto3Optional() ? field.getOneofIndex() : -1;
        Presence label = null;
        if (message.getOptions().getMapEntry()) {
            label = Presence.IMPLICIT;
        } else if (field.getLabel() == Label.LABEL_REPEATED) {
            label = Presence.REPEATED;
        } else if (field.getLabel() == Label.LABEL_REQUIRED) {
            label = Presence.REQUIRED;
        } else if (field.hasOneofIndex()) {
            label = Presence.EXPLICIT;
        }
        String type = field.getType().name().substring("TYPE_".length()).toLowerCase(Locale.ROOT);
        return new Field(
                field.getName(),
                field.getNumber(),
                field.hasTypeName() ? field.getTypeName() : type,
                features.presence(label),
                oneof >= 0 && oneof < message.getOneofDeclCount() ? message.getOneofDecl(oneof).getName() : null,
                field.getType() == Type.TYPE_GROUP || features.delimited(),
                0);
    }

    private static List<Enum> enums(List<EnumDescriptorProto> enums) {
        return enums.stream()
                .map(each -> new Enum(
                        each.getName(),
                        each.getValueList().stream()
                                .map(value -> new Value(value.getName(), value.getNumber()))
                                .toList(),
                        false))
                .toList();
    }
}
