package io.lakefeed.decode;

import io.lakefeed.protobuf.ProtoTypes;
import java.util.List;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;

/**
 * Parses registered schemas of one kind.
 *
 * @param <T> the parsed schema
 */
interface WriterSchema<T> {
    /** Avro: references define types that the schema uses by their names. */
    WriterSchema<Schema> AVRO = new WriterSchema<>() {
        @Override
        public String kind() {
            return "AVRO";
        }

        @Override
        public Schema parse(String text, List<String> referred) {
            // A writer's schema is taken as it is: neither odd names nor a default of the wrong type stops reading.
            Schema.Parser parser = new Schema.Parser(NameValidator.NO_VALIDATION);
            parser.setValidateDefaults(false);
            referred.forEach(parser::parse);
            return parser.parse(text);
        }

        @Override
        public String toString() {
            return "Avro";
        }
    };

    /** Protobuf: references are imported files. */
    WriterSchema<ProtoTypes> PROTOBUF = new WriterSchema<>() {
        @Override
        public String kind() {
            return "PROTOBUF";
        }

        @Override
        public ProtoTypes parse(String text, List<String> referred) {
            return ProtobufSchemas.types(text, referred);
        }

        @Override
        public String toString() {
            return "Protobuf";
        }
    };

    /** JSON Schema: values describe themselves, so the schema must only exist. */
    WriterSchema<String> JSON = new WriterSchema<>() {
        @Override
        public String kind() {
            return "JSON";
        }

        @Override
        public String parse(String text, List<String> referred) {
            return text;
        }

        @Override
        public String toString() {
            return "JSON";
        }
    };

    /** Returns the registry's name of the kind. */
    String kind();

    /**
     * Parses {@code text}.
     *
     * @param referred texts of the schemas that it refers to, each after those that it needs itself
     * @throws RuntimeException if it is not valid
     */
    T parse(String text, List<String> referred);
}
