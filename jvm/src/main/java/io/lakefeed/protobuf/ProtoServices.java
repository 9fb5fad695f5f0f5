package io.lakefeed.protobuf;

/** Skips the services of a {@code .proto} text, and refuses mistakes of grammar in them. */
final class ProtoServices {
    private final ProtoTokens tokens;
    private final ProtoOptions options;

    ProtoServices(ProtoTokens tokens, ProtoOptions options) {
        this.tokens = tokens;
        this.options = options;
    }

    /** Takes a service. */
    void service(ProtoScope around) {
        int line = tokens.line();
        tokens.expect("service");
        String name = tokens.name();
        around.define(name, line);
        ProtoScope scope = new ProtoScope("service " + name);
        tokens.expect("{");
        while (!tokens.taken("}")) {
            if (tokens.at("option")) {
                options.statement();
            } else if (!tokens.taken(";")) {
                method(scope);
            }
        }
    }

    private void method(ProtoScope scope) {
        int line = tokens.line();
        tokens.expect("rpc");
        scope.define(tokens.name(), line);
        methodType();
        tokens.expect("returns");
        methodType();
        if (tokens.taken("{")) {
            while (!tokens.taken("}")) {
                if (!tokens.taken(";")) {
                    options.statement();
                }
            }
        } else {
            tokens.expect(";");
        }
    }

    private void methodType() {
        tokens.expect("(");
        tokens.taken("stream");
        tokens.messageType();
        tokens.expect(")");
    }
}
