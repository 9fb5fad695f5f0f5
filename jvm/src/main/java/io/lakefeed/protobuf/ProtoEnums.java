package io.lakefeed.protobuf;

import static io.lakefeed.protobuf.ProtoTokens.wrong;

import io.lakefeed.protobuf.ProtoFile.Enum;
import io.lakefeed.protobuf.ProtoFile.Value;
import io.lakefeed.protobuf.ProtoOptions.Option;
import java.util.ArrayList;
import java.util.List;

/** Reads the enums of a {@code .proto} text. */
final class ProtoEnums {
    private final ProtoTokens tokens;
    private final ProtoOptions options;
    private final ProtoReserved reserved;

    ProtoEnums(ProtoTokens tokens, ProtoOptions options, ProtoReserved reserved) {
        this.tokens = tokens;
        this.options = options;
        this.reserved = reserved;
    }

    /** Takes an enum after its first word; its values are names of the scope around it. */
    Enum enumeration(ProtoScope around, Features inherited) {
        int line = tokens.line();
        String name = tokens.name();
        around.define(name, line);
        ProtoScope scope = new ProtoScope("enum " + name);
        List<Value> values = new ArrayList<>();
        Option alias = null;
        tokens.expect("{");
        Features features = options.blockFeatures(inherited, Features.Place.ENUM);
        while (!tokens.taken("}")) {
            if (tokens.at("option")) {
                List<Option> found = options.statement();
                alias = found.stream().filter(each -> each.name().equals("allow_alias")).findFirst().orElse(alias);
            } else if (tokens.at("reserved")) {
                reserved.reserved(scope, Integer.MAX_VALUE);
            } else if (!tokens.taken(";")) {
                values.add(enumValue(around, scope));
            }
        }
        checkEnum(name, values, features, line);
        scope.checkAlias(alias);
        scope.close();
        return new Enum(name, values, !features.openEnums());
    }

    private Value enumValue(ProtoScope around, ProtoScope scope) {
        int line = tokens.line();
        String name = tokens.name();
        around.define(name, line);
        tokens.expect("=");
        int number = (int) (tokens.taken("-") ? -tokens.integer(1L << 31) : tokens.integer(Integer.MAX_VALUE));
        scope.value(name, number, line);
        options.list();
        tokens.expect(";");
        return new Value(name, number);
    }

    private static void checkEnum(String name, List<Value> values, Features features, int line) {
        if (values.isEmpty()) {
            throw wrong(line, "the enum " + name + " has no value: add one");
        }
        if (features.openEnums() && values.get(0).number() != 0) {
            throw wrong(line, "the first value of the enum " + name + " has to be 0: add one, or move it up");
        }
    }
}
