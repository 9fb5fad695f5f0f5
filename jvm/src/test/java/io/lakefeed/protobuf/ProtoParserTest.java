package io.lakefeed.protobuf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.protobuf.ProtoFile.Field;
import io.lakefeed.protobuf.ProtoFile.Message;
import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoFile.Value;
import java.util.List;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ProtoParserTest {
    private static final String PROTO3 = "syntax = \"proto3\"; ";
    private static final String PROTO2 = "syntax = \"proto2\"; ";
    private static final String EDITION = "edition = \"2023\"; ";

    private static Message message(String text) {
        return ProtoParser.parse(text).messages().get(0);
    }

    /** Returns a field without its line. */
    private static Field unplaced(Field field) {
        return new Field(
                field.name(), field.number(), field.type(), field.presence(), field.oneof(), field.delimited(), 0);
    }

    /** Returns the only field of a message with this body. */
    private static Field field(String syntax, String body) {
        List<Field> fields = message(syntax + "message M { " + body + " }").fields();
        assertEquals(1, fields.size());
        return unplaced(fields.get(0));
    }

    @Nested
    class Files {
        @Test
        void aFileHasItsPackageImportsMessagesAndEnums() {
            ProtoFile file = ProtoParser.parse(PROTO3
                    + "package a.b; import \"x.proto\"; import public \"y.proto\"; import weak \"z.proto\";"
                    + " option java_package = \"c\"; message M {} enum E { ZERO = 0; } message N {}");
            assertEquals("a.b", file.packageName());
            assertEquals(List.of("x.proto", "y.proto", "z.proto"), file.imports());
            assertEquals(List.of("M", "N"), file.messages().stream().map(Message::name).toList());
            assertEquals("E", file.enums().get(0).name());
        }

        @Test
        void aFileWithoutASyntaxIsProto2() {
            assertEquals(Presence.EXPLICIT, field("", "optional int32 a = 1;").presence());
        }

        @Test
        void aFileCanBeEmpty() {
            assertEquals(new ProtoFile("", List.of(), List.of(), List.of()), ProtoParser.parse(PROTO3));
            assertEquals(List.of(), ProtoParser.parse(PROTO3 + ";;").messages());
        }

        @Test
        void servicesAndExtensionsAreSkipped() {
            ProtoFile file = ProtoParser.parse(PROTO2
                    + "message M { extensions 100 to max; } extend M { optional string note = 100; }"
                    + " service S { rpc Get (M) returns (stream M) { option deadline = 3; } }");
            assertEquals(1, file.messages().size());
            assertEquals(List.of(), file.messages().get(0).fields());
        }

        @Test
        void optionsOfAllFormsAreSkipped() {
            Message message = message(PROTO2
                    + "option (my.option).part = { a: 1 b { c: \"}\" } }; option x = -1.5e3; option y = \"a\" \"b\";"
                    + " message M { option deprecated = true; optional string s = 1"
                    + " [default = \"a;]\", (other) = { n: [1, 2] }, deprecated = true]; reserved 4, 6 to 9; reserved \"old\"; }");
            assertEquals("s", message.fields().get(0).name());
        }
    }

    @Nested
    class DefaultsOfFloats {
        @ParameterizedTest
        @ValueSource(strings = {"1", "-5", "1.5", "- 2e3", "inf", "-inf", "nan", "-nan"})
        void numbersAreRead(String number) {
            assertEquals("a", field(PROTO2, "optional float a = 1 [default = " + number + "];").name());
        }

        @ParameterizedTest
        @ValueSource(strings = {"--5", "- -inf", "{}", "infinite", "\"inf\"", "-\"1\"", "-", ""})
        void defaultsOfFloatsThatAreNoNumbersAreRefused(String value) {
            String text = PROTO2 + "message M { optional double a = 1 [default = " + value + "]; }";
            assertThrows(SchemaException.class, () -> ProtoParser.parse(text));
        }
    }

    @Nested
    class Presences {
        @ParameterizedTest(name = "{0} {1}: {2}")
        @CsvSource({
            "proto3, int32 a = 1;, IMPLICIT",
            "proto3, optional int32 a = 1;, EXPLICIT",
            "proto3, repeated int32 a = 1;, REPEATED",
            "proto2, optional int32 a = 1;, EXPLICIT",
            "proto2, required int32 a = 1;, REQUIRED",
            "proto2, repeated int32 a = 1;, REPEATED",
            "proto3, oneof o { int32 a = 1; }, EXPLICIT",
            "2023, int32 a = 1;, EXPLICIT",
            "2023, int32 a = 1 [features.field_presence = IMPLICIT];, IMPLICIT",
            "2023, int32 a = 1 [features.field_presence = LEGACY_REQUIRED];, REQUIRED",
            "2023, int32 a = 1 [features = { field_presence: IMPLICIT }];, IMPLICIT",
        })
        void presenceFollowsFromSyntaxLabelAndFeatures(String syntax, String body, Presence presence) {
            String header = syntax.equals("2023") ? EDITION : "syntax = \"" + syntax + "\"; ";
            assertEquals(presence, field(header, body).presence());
        }

        @Test
        void theFieldPresenceOfAFileAppliesToNestedMessages() {
            String text = EDITION + "option features.field_presence = IMPLICIT; message M { message N { int32 a = 1; } }";
            assertEquals(Presence.IMPLICIT, message(text).messages().get(0).fields().get(0).presence());
        }

        @Test
        void theFieldPresenceOfAFileAppliesToMessagesBeforeTheOption() {
            String text = EDITION + "message M { int32 a = 1; } option features.field_presence = IMPLICIT;";
            assertEquals(Presence.IMPLICIT, message(text).fields().get(0).presence());
        }

        @Test
        void aMessageCannotSetTheFieldPresence() {
            String text = EDITION + "message M { option features.field_presence = IMPLICIT; }";
            assertThrows(SchemaException.class, () -> message(text));
        }
    }

    @Nested
    class Fields {
        @ParameterizedTest
        @ValueSource(strings = {"double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
            "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes", "Other", "a.b.Other", ".a.b.Other"})
        void aFieldHasItsTypeAsWritten(String type) {
            assertEquals(new Field("a", 7, type, Presence.IMPLICIT, null, false, 0), field(PROTO3, type + " a = 7;"));
        }

        @ParameterizedTest
        @ValueSource(strings = {"message", "enum", "option", "oneof", "reserved", "extensions", "map", "group", "package",
            "import", "syntax", "string", "repeated", "to", "max", "stream", "returns", "rpc", "service", "extend"})
        void aFieldCanHaveTheNameOfAKeyword(String name) {
            assertEquals(name, field(PROTO3, "string " + name + " = 1;").name());
        }

        @Test
        void fieldsBelongToTheirOneof() {
            Message message = message(PROTO3 + "message M { oneof choice { string a = 1; int32 b = 2; } int32 c = 3; }");
            assertEquals("choice", message.fields().get(0).oneof());
            assertEquals("choice", message.fields().get(1).oneof());
            assertNull(message.fields().get(2).oneof());
        }

        @ParameterizedTest(name = "{0}: {1}")
        @CsvSource({"by_zone, ByZoneEntry", "a, AEntry", "a_b_c, ABCEntry", "byZone, ByZoneEntry", "x1_y, X1YEntry", "_a, AEntry"})
        void aMapIsARepeatedEntryMessage(String name, String entry) {
            Message message = message(PROTO3 + "message M { map<string, a.Value> " + name + " = 5; }");
            assertEquals(new Field(name, 5, entry, Presence.REPEATED, null, false, 0), unplaced(message.fields().get(0)));
            Message made = message.messages().get(0);
            assertEquals(entry, made.name());
            assertTrue(made.mapEntry());
            assertEquals(List.of("string", "a.Value"), made.fields().stream().map(Field::type).toList());
            assertEquals(List.of(1, 2), made.fields().stream().map(Field::number).toList());
        }

        @Test
        void aGroupIsADelimitedMessage() {
            Message message = message(PROTO2 + "message M { repeated group Item = 3 { required int32 a = 1; } }");
            assertEquals(new Field("item", 3, "Item", Presence.REPEATED, null, true, 0), unplaced(message.fields().get(0)));
            assertEquals("Item", message.messages().get(0).name());
            assertEquals(Presence.REQUIRED, message.messages().get(0).fields().get(0).presence());
        }

        @Test
        void aFeatureMakesAMessageDelimited() {
            assertTrue(field(EDITION, "N a = 1 [features.message_encoding = DELIMITED];").delimited());
            assertFalse(field(EDITION, "N a = 1 [features.message_encoding = LENGTH_PREFIXED];").delimited());
        }
    }

    @Nested
    class Nesting {
        @Test
        void nestedMessagesAndEnumsKeepTheirOrder() {
            Message message = message(PROTO3
                    + "message M { enum E { A = 0; B = 5; } message N { message O { } } message P { } E e = 1; }");
            assertEquals(List.of("N", "P"), message.messages().stream().map(Message::name).toList());
            assertEquals("O", message.messages().get(0).messages().get(0).name());
            assertEquals(List.of(new Value("A", 0), new Value("B", 5)), message.enums().get(0).values());
        }

        @Test
        void theDepthOfNestedMessagesIsLimited() {
            String deep = PROTO3 + "message M { ".repeat(101) + "} ".repeat(101);
            assertThrows(SchemaException.class, () -> ProtoParser.parse(deep));
            ProtoParser.parse(PROTO3 + "message M { ".repeat(100) + "} ".repeat(100));
        }
    }

    @Test
    void enumsHaveNegativeAndHexadecimalNumbersAndAliases() {
        ProtoFile file = ProtoParser.parse(PROTO2 + "enum E { option allow_alias = true; A = 0; B = -1 [deprecated = true];"
                + " C = 0x10; D = 0; reserved 4 to 6; reserved \"X\"; }");
        assertEquals(
                List.of(new Value("A", 0), new Value("B", -1), new Value("C", 16), new Value("D", 0)),
                file.enums().get(0).values());
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "message",
        "message M",
        "message M {",
        "message M { string }",
        "message M { string a }",
        "message M { string a = ; }",
        "message M { string a = b; }",
        "message M { string a = 1 }",
        "message M { string a = 1 [deprecated = true; }",
        "message M { string 1a = 1; }",
        "message M { = 1; }",
        "message M { map<string> a = 1; }",
        "message M { map<string, int32 a = 1; }",
        "message M { oneof { string a = 1; } }",
        "message M { oneof o { string a = 1; }",
        "message M { reserved 1 to",
        "message M { enum E { A = 0 } }",
        "message M { enum { A = 0; } }",
        "message 'M' { }",
        "message M { } }",
        "enum E { A; }",
        "enum E { A = x; }",
        "import x;",
        "import \"x\"",
        "package ;",
        "package a.;",
        "option x",
        "service S { rpc",
        "extend M { string a = 1",
        "record M { }",
        "{}",
        "syntax = \"proto3\"; message M { }",
        "\"text\"",
    })
    void invalidTextsAreRefused(String text) {
        SchemaException wrong = assertThrows(SchemaException.class, () -> ProtoParser.parse(PROTO3 + text));
        assertFalse(wrong.getMessage().isBlank());
    }

    @Test
    void anUnknownSyntaxIsRefused() {
        assertThrows(SchemaException.class, () -> ProtoParser.parse("syntax = \"proto4\";"));
        assertThrows(SchemaException.class, () -> ProtoParser.parse("syntax = proto3;"));
    }
}
