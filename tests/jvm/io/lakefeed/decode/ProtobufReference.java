package io.lakefeed.decode;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import io.lakefeed.protobuf.ProtoDescriptor;
import io.lakefeed.protobuf.ProtoFile;
import io.lakefeed.protobuf.ProtoTypes;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/** Parses Protobuf schemas with lakefeed. */
final class ProtobufReference {
    private ProtobufReference() {}

    /** Returns the Avro schema of each of {@code schemas} ({@code text}, {@code references}, {@code message}), or the error. */
    static ArrayNode avro(JsonNode schemas) {
        ArrayNode found = Canonical.JSON.createArrayNode();
        for (JsonNode each : schemas) {
            List<String> referred = new ArrayList<>();
            each.path("references").forEach(text -> referred.add(text.asText()));
            String message = each.hasNonNull("message") ? each.get("message").asText() : null;
            ProtoTypes types = ProtobufSchemas.types(each.get("text").asText(), referred);
            found.addObject()
                    .put("schema", ProtobufSchemas.avroSchema(types, message))
                    .putPOJO("indexes", types.indexes(types.message(message)));
        }
        return found;
    }

    /** Returns each of {@code files} as parsed from its text, and as parsed from protoc's descriptors. */
    static ArrayNode parsed(JsonNode request) {
        Map<String, ProtoFile> compiled =
                ProtoDescriptor.files(Base64.getDecoder().decode(request.get("set").asText()));
        ArrayNode found = Canonical.JSON.createArrayNode();
        List<ProtoFile> texts = new ArrayList<>();
        request.get("files").forEach(file -> texts.add(ProtoTypes.read(file.get("text").asText())));
        int at = 0;
        for (JsonNode file : request.get("files")) {
            found.addObject()
                    .put("text", ProtoTypes.of(texts.get(at++), texts).toString())
                    .put("descriptor", ProtoTypes.of(compiled.get(file.get("name").asText()), compiled.values()).toString());
        }
        return found;
    }
}
