package io.lakefeed.protobuf;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Stream;

/**
 * The types in Protobuf's libraries, which schemas import although they are in no registry: {@code
 * google/protobuf/*.proto}, {@code google/type/*.proto} and Confluent's decimal.
 */
final class KnownTypes {
    static final List<ProtoFile> FILES = Stream.of("protobuf", "type", "confluent").map(KnownTypes::parsed).toList();

    private KnownTypes() {}

    private static ProtoFile parsed(String name) {
        try (InputStream text = KnownTypes.class.getResourceAsStream(name + ".proto")) {
            return ProtoParser.parse(new String(text.readAllBytes(), StandardCharsets.UTF_8));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
