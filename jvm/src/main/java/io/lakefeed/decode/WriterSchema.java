package io.lakefeed.decode;

import io.lakefeed.protobuf.ProtoTypes;
import java.util.List;
import java.util.function.BiFunction;
import org.apache.avro.Schema;

/**
 * A kind of schema in a registry: Avro, Protobuf or JSON Schema.
 *
 * @param kind the registry's name of the kind
 * @param name the name of the kind in errors
 * @param parser parses a schema's text; its second argument lists the texts that the schema refers to, each of them
 * after its own references
 * @param <T> the type of a parsed schema
 */
record WriterSchema<T>(String kind, String name, BiFunction<String, List<String>, T> parser) {
    /** Avro: a schema uses the types of its references by their names. */
    static final WriterSchema<Schema> AVRO = new WriterSchema<>("AVRO", "Avro", (text, referred) -> {
        Schema.Parser parser = SparkApi.parser();
        referred.forEach(parser::parse);
        return parser.parse(text);
    });

    /** Protobuf: the references of a schema are the files that it imports. */
    static final WriterSchema<ProtoTypes> PROTOBUF = new WriterSchema<>("PROTOBUF", "Protobuf", ProtobufSchemas::types);

    /** JSON Schema: the decoder only checks that the registry has the schema, as it reads JSON without one. */
    static final WriterSchema<String> JSON = new WriterSchema<>("JSON", "JSON", (text, referred) -> text);
}
