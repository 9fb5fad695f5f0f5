package io.lakefeed.protobuf;

import org.sparkproject.spark_core.protobuf.DescriptorProtos.FeatureSet;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FieldOptions;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.MessageOptions;

/** Reads the features of a descriptor, which Spark's copy of protobuf-java knows from 4.0 on. */
final class SparkProtobuf {
    private SparkProtobuf() {}

    static Features features(FileDescriptorProto file) {
        Features syntax = file.hasEdition() ? Features.EDITION : Features.ofSyntax(file.getSyntax());
        return features(syntax, file.getOptions().getFeatures());
    }

    static Features features(Features inherited, MessageOptions options) {
        return features(inherited, options.getFeatures());
    }

    static Features features(Features inherited, FieldOptions options) {
        return features(inherited, options.getFeatures());
    }

    private static Features features(Features inherited, FeatureSet set) {
        return inherited
                .with("field_presence", set.getFieldPresence().name())
                .with("message_encoding", set.getMessageEncoding().name());
    }
}
