package io.lakefeed.decode;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.UUID;

/** Names a schema by another key than its id; {@link Registry#id} asks the registry for the id, once. */
record SchemaReference(Kind kind, String key) {
    /** The kinds of keys. Each kind has its own request, whose answer has the id. */
    enum Kind {
        GUID("schema GUID ") {
            @Override
            String path(String key) {
                return "/schemas/guids/" + key + "/ids";
            }

            @Override
            boolean answers(JsonNode answer) {
                return answer.isArray();
            }

            /** A key to which each context of a registry gives an id of its own. */
            @Override
            JsonNode id(JsonNode answer, String context) {
                for (JsonNode each : answer) {
                    String of = each.path("context").asText();
                    if (context.isEmpty() ? of.isEmpty() || of.equals(".") : context.equals(":" + of + ":")) {
                        return each.path("id");
                    }
                }
                return answer.path("id");
            }
        },
        /** A global id. Only Apicurio's own API can resolve it, not its API for Confluent's clients. */
        GLOBAL_ID("global id ") {
            @Override
            String path(String key) {
                return "/../../registry/v3/search/versions?globalId=" + key;
            }

            @Override
            boolean answers(JsonNode answer) {
                return answer.path("versions").isArray();
            }

            @Override
            JsonNode id(JsonNode answer, String context) {
                return answer.path("versions").path(0).path("contentId");
            }
        };

        private final String name;

        Kind(String name) {
            this.name = name;
        }

        /** Returns the request's path, without the registry's address. */
        abstract String path(String key);

        /** Returns whether an answer comes from a registry. */
        abstract boolean answers(JsonNode answer);

        /** Returns the id in a registry's answer; a missing node if the registry does not have the schema. */
        abstract JsonNode id(JsonNode answer, String context);
    }

    static SchemaReference guid(UUID guid) {
        return new SchemaReference(Kind.GUID, guid.toString());
    }

    static SchemaReference globalId(long number) {
        return new SchemaReference(Kind.GLOBAL_ID, Long.toString(number));
    }

    String path() {
        return kind.path(key);
    }

    /** Returns the name of the schema for errors. */
    @Override
    public String toString() {
        return kind.name + key;
    }
}
