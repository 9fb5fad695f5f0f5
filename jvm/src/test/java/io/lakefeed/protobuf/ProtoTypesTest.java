package io.lakefeed.protobuf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.protobuf.ProtoFile.Presence;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ProtoTypesTest {
    private static final String PROTO3 = "syntax = \"proto3\"; ";

    private static ProtoTypes types(String main, String... others) {
        return ProtoTypes.of(
                ProtoParser.parse(PROTO3 + main),
                Arrays.stream(others).map(text -> ProtoParser.parse(PROTO3 + text)).toList());
    }

    private static ProtoMessage.Field first(ProtoMessage message) {
        return message.fields().get(0);
    }

    @Nested
    class Messages {
        private final ProtoTypes types =
                types("package a.b; message M { message N { message O {} } } message P { message N {} message Q {} }");

        @ParameterizedTest(name = "{0} is {1}")
        @CsvSource({"M, a.b.M", "a.b.P, a.b.P", "M.N, a.b.M.N", "a.b.P.N, a.b.P.N", "M.N.O, a.b.M.N.O"})
        void messagesAreFoundByName(String name, String full) {
            assertEquals(full, types.message(name).fullName());
        }

        @ParameterizedTest(name = "{0} is {1}")
        @CsvSource({"0, a.b.M", "1, a.b.P", "0 0, a.b.M.N", "0 0 0, a.b.M.N.O", "1 1, a.b.P.Q"})
        void aMessageIsFoundByItsIndexesAndHasTheseIndexes(String indexes, String full) {
            List<Integer> path = Arrays.stream(indexes.split(" ")).map(Integer::valueOf).toList();
            assertEquals(full, types.message(path).fullName());
            assertEquals(path, types.indexes(types.message(full)));
        }

        @ParameterizedTest
        @ValueSource(strings = {"2", "-1", "0 1", "0 0 0 0", "2147483647"})
        void indexesWithoutAMessageAreRefused(String indexes) {
            List<Integer> path = Arrays.stream(indexes.split(" ")).map(Integer::valueOf).toList();
            assertThrows(Malformed.class, () -> types.message(path));
        }

        @Test
        void theDefaultMessageIsTheFirstMessage() {
            assertEquals("a.b.M", types.message((String) null).fullName());
            ProtoTypes none = types("enum E { A = 0; }");
            assertThrows(SchemaException.class, () -> none.message((String) null));
        }

        @Test
        void theErrorForAMissingMessageNamesTheExistingMessages() {
            SchemaException missing = assertThrows(SchemaException.class, () -> types.message("Z"));
            assertTrue(missing.getMessage().contains("a.b.M, a.b.P"), missing.getMessage());
        }
    }

    @Nested
    class References {
        @ParameterizedTest(name = "{0} inside a.b.M means {1}")
        @CsvSource({
            "T, a.b.M.T", // the innermost scope is searched first
            "b.T, a.b.T",
            "a.b.T, a.b.T",
            ".a.b.T, a.b.T",
            ".T, T",
            "a.T, a.T",
            "M.T, a.b.M.T",
        })
        void aReferenceMeansTheTypeOfTheInnermostScope(String reference, String full) {
            ProtoTypes types = types(
                    "package a.b; message M { message T {} " + reference + " x = 1; } message T {}",
                    "package a; message T {}",
                    "message T {}");
            assertEquals(full, first(types.message("M")).message().fullName());
        }

        @Test
        void referencesReachOtherFilesAndWellKnownTypes() {
            ProtoTypes types = types(
                    "message M { other.T a = 1; google.protobuf.Timestamp b = 2; }", "package other; message T { int32 x = 1; }");
            List<ProtoMessage.Field> fields = types.message("M").fields();
            assertEquals("other.T", fields.get(0).message().fullName());
            assertEquals("google.protobuf.Timestamp", fields.get(1).message().fullName());
            assertEquals(List.of("M"), types.topLevel(), "the other file's messages are not the schema's");
        }

        @Test
        void aMessageCanReferToItself() {
            ProtoMessage message = types("message M { repeated M children = 1; }").message("M");
            assertSame(message, first(message).message());
        }

        @Test
        void aMissingTypeIsRefusedWhenTheFieldsAreUsed() {
            ProtoMessage message = types("message M { Missing a = 1; }").message("M");
            SchemaException missing = assertThrows(SchemaException.class, message::fields);
            assertTrue(missing.getMessage().contains("Missing"), missing.getMessage());
            assertTrue(missing.getMessage().contains("of M"), missing.getMessage());
        }
    }

    @Nested
    class ResolvedFields {
        @Test
        void aFieldHasTheTypeOfItsReference() {
            List<ProtoMessage.Field> fields = types(
                            "message M { int32 a = 1; E b = 2; M c = 3; map<string, E> d = 4; } enum E { ZERO = 0; ONE = 1; }")
                    .message("M")
                    .fields();
            assertEquals(
                    List.of(ProtoType.INT32, ProtoType.ENUM, ProtoType.MESSAGE, ProtoType.MESSAGE),
                    fields.stream().map(ProtoMessage.Field::type).toList());
            assertEquals("ZERO", fields.get(1).symbols().get(0).name());
            assertTrue(fields.get(3).isMap());
            assertEquals("DEntry", fields.get(3).message().name());
        }

        @Test
        void aFieldOfAMessageTypeHasPresence() {
            assertEquals(Presence.EXPLICIT, first(types("message M { M a = 1; }").message("M")).presence());
            assertEquals(Presence.IMPLICIT, first(types("message M { int32 a = 1; }").message("M")).presence());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"AAAA", "a", "Zm9v", "===="})
    void base64ThatIsNoDescriptorIsRefused(String text) {
        assertThrows(SchemaException.class, () -> ProtoTypes.read(text));
    }

    @Test
    void textIsParsed() {
        assertEquals("M", ProtoTypes.read("message M { }").messages().get(0).name());
    }
}
