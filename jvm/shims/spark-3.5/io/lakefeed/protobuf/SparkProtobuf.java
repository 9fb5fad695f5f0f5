package io.lakefeed.protobuf;

import org.sparkproject.spark_core.protobuf.DescriptorProtos.FieldOptions;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.MessageOptions;

/** Reads the features of a descriptor, which Spark's copy of protobuf-java knows from 4.0 on. */
final class SparkProtobuf {
    private SparkProtobuf() {}

    static Features features(FileDescriptorProto file) {
        if (file.getSyntax().equals("editions")) {
            throw new SchemaException("Spark 3.5 cannot read compiled schemas of editions: give the schema's text");
        }
        return Features.ofSyntax(file.getSyntax());
    }

    static Features features(Features inherited, MessageOptions options) {
        return inherited;
    }

    static Features features(Features inherited, FieldOptions options) {
        return inherited;
    }
}
