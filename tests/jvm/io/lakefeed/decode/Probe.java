package io.lakefeed.decode;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.ThreadMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Runs decoders without Spark. Each request is a line of JSON, and so is its answer ({@code tests/support/probe.py}).
 *
 * <p>A request has {@code do}, and {@code options} of a {@link DecodeCatalog} and usually {@code payloads} in Base64:
 *
 * <ul>
 *   <li>{@code decode}: for each payload {@code value} ({@link Canonical}), {@code schema_id} and {@code error};
 *   <li>{@code fail}: for each of {@code ways} the error of {@link Faulty};
 *   <li>{@code hash}: for each payload, as text, its hash code;
 *   <li>{@code type}: the type of the value as Spark's JSON;
 *   <li>{@code measure}: for each payload {@code error}, {@code nanos} of CPU and allocated {@code bytes}: the least of {@code
 *       rounds} runs, after {@code warm_up} runs over all payloads;
 *   <li>{@code compare}: for each of {@code pairs} ({@code writer}, {@code reader}, {@code payloads}), the differences between
 *       lakefeed and Avro Java ({@link AvroReference}).
 * </ul>
 */
public final class Probe {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private Probe() {}

    /** Answers requests until there are no more. */
    public static void main(String[] none) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", answerTo(JSON.readTree(line)));
            } catch (Throwable failed) {
                failed.printStackTrace();
                answer.put("failed", failed.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private static ArrayNode answerTo(JsonNode request) throws Exception {
        return switch (request.get("do").asText()) {
            case "decode" -> decoded(request);
            case "measure" -> measured(request);
            case "type" -> JSON.createArrayNode()
                    .add(JSON.readTree(Decoder.of(request.get("options")).type.apply(0).dataType().json()));
            case "hash" -> {
                ArrayNode hashes = JSON.createArrayNode();
                payloads(request.get("payloads"))
                        .forEach(each -> hashes.addObject().put("hash", UTF8String.fromBytes(each).hashCode()));
                yield hashes;
            }
            case "fail" -> failed(request.get("ways"));
            case "protobuf-avro" -> ProtobufReference.avro(request.get("schemas"));
            case "protobuf-files" -> ProtobufReference.parsed(request);
            case "compare" -> AvroReference.differences(request.get("pairs"));
            default -> throw new IllegalArgumentException("unknown request");
        };
    }

    /** A decoder, created from a catalog's options as Spark does. */
    private record Decoder(Object function, Method invoke, StructType type) {
        static Decoder of(JsonNode options) throws Exception {
            Map<String, String> given = new HashMap<>();
            options.fields().forEachRemaining(each -> given.put(each.getKey(), each.getValue().asText()));
            DecodeCatalog catalog = new DecodeCatalog();
            catalog.initialize("probe", new CaseInsensitiveStringMap(given));
            Object function = catalog.loadFunction(Identifier.of(new String[0], "decode"))
                    .bind(new StructType().add("value", "binary"));
            StructType type = (StructType) ((ScalarFunction<?>) function).resultType();
            return new Decoder(function, function.getClass().getMethod("invoke", byte[].class), type);
        }

        InternalRow read(byte[] payload) throws Exception {
            return (InternalRow) invoke.invoke(function, payload);
        }
    }

    private static ArrayNode failed(JsonNode ways) {
        Faulty reader = new Faulty();
        ArrayNode errors = JSON.createArrayNode();
        for (JsonNode way : ways) {
            InternalRow row = reader.read(way.asText().getBytes(StandardCharsets.UTF_8), null);
            errors.addObject().put("error", row.isNullAt(2) ? null : row.getUTF8String(2).toString());
        }
        return errors;
    }

    private static List<byte[]> payloads(JsonNode texts) {
        List<byte[]> payloads = new ArrayList<>();
        texts.forEach(each -> payloads.add(each.isNull() ? null : Base64.getDecoder().decode(each.asText())));
        return payloads;
    }

    private static ArrayNode decoded(JsonNode request) throws Exception {
        Decoder decoder = Decoder.of(request.get("options"));
        ArrayNode results = JSON.createArrayNode();
        for (byte[] payload : payloads(request.get("payloads"))) {
            InternalRow row = decoder.read(payload);
            ObjectNode result = results.addObject();
            result.set("value", row.isNullAt(0) ? null : Canonical.of(row.getStruct(0, 0), decoder.type.apply(0).dataType()));
            result.put("schema_id", row.isNullAt(1) ? null : row.getInt(1));
            result.put("error", row.isNullAt(2) ? null : row.getUTF8String(2).toString());
        }
        return results;
    }

    private static ArrayNode measured(JsonNode request) throws Exception {
        Decoder decoder = Decoder.of(request.get("options"));
        List<byte[]> payloads = payloads(request.get("payloads"));
        for (int round = 0; round < request.get("warm_up").asInt(); round++) {
            for (byte[] payload : payloads) {
                decoder.read(payload);
            }
        }
        ArrayNode results = JSON.createArrayNode();
        for (byte[] payload : payloads) {
            long nanos = Long.MAX_VALUE;
            long bytes = Long.MAX_VALUE;
            InternalRow row = null;
            for (int round = 0; round < request.get("rounds").asInt(); round++) {
                long bytesBefore = THREADS.getCurrentThreadAllocatedBytes();
                long nanosBefore = THREADS.getCurrentThreadCpuTime();
                row = decoder.read(payload);
                nanos = Math.min(nanos, THREADS.getCurrentThreadCpuTime() - nanosBefore);
                bytes = Math.min(bytes, THREADS.getCurrentThreadAllocatedBytes() - bytesBefore);
            }
            ObjectNode result = results.addObject();
            result.put("error", row.isNullAt(2) ? null : row.getUTF8String(2).toString());
            result.put("row", !row.isNullAt(0));
            result.put("nanos", nanos);
            result.put("bytes", bytes);
        }
        return results;
    }
}
