package io.lakefeed.decode;

import io.lakefeed.protobuf.ProtoTypes;
import java.util.List;
import java.util.function.BiFunction;
import org.apache.avro.Schema;

/**
 * A kind of registered schemas.
 *
 * @param kind the registry's name of it
 * @param name for errors
 * @param parser parses a schema's text; its second argument are the texts of the schemas that it refers to, each after
 *     the ones that it needs itself
 * @param <T> the parsed schema
 */
record WriterSchema<T>(String kind, String name, BiFunction<String, List<String>, T> parser) {
    /** Avro: a schema uses the types of its references by their names. */
    static final WriterSchema<Schema> AVRO = new WriterSchema<>("AVRO", "Avro", (text, referred) -> {
        Schema.Parser parser = AvroTypes.parser();
        referred.forEach(parser::parse);
        return parser.parse(text);
    });

    /** Protobuf: references are imported files. */
    static final WriterSchema<ProtoTypes> PROTOBUF = new WriterSchema<>("PROTOBUF", "Protobuf", ProtobufSchemas::types);

    /** JSON Schema: values describe themselves, so the schema must only exist. */
    static final WriterSchema<String> JSON = new WriterSchema<>("JSON", "JSON", (text, referred) -> text);
}
