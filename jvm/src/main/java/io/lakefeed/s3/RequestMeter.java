package io.lakefeed.s3;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import software.amazon.awssdk.core.interceptor.Context;
import software.amazon.awssdk.core.interceptor.ExecutionAttributes;
import software.amazon.awssdk.core.interceptor.ExecutionInterceptor;
import software.amazon.awssdk.core.interceptor.SdkExecutionAttribute;
import software.amazon.awssdk.http.SdkHttpMethod;

/**
 * Counts the HTTP requests that this JVM sends to S3, by operation (PutObject, HeadObject, …).
 *
 * <p>Every S3 client of the AWS SDK 2 in the JVM has it, Hadoop's S3A and Iceberg's S3FileIO alike, because the
 * SDK reads the class path resource {@code software/amazon/awssdk/services/s3/execution.interceptors}. Counted is
 * each attempt: a retried request counts as often as it was sent, since that is what the store sees.
 */
public final class RequestMeter implements ExecutionInterceptor {
    private static final Map<String, LongAdder> REQUESTS = new ConcurrentHashMap<>();
    private static final LongAdder BYTES_OUT = new LongAdder();
    private static final LongAdder BYTES_IN = new LongAdder();
    private static final LongAdder ERRORS = new LongAdder();

    /** The SDK makes one for each client. */
    public RequestMeter() {}

    /** The number of requests for each operation since this JVM began, in the order of their names. */
    public static Map<String, Long> snapshot() {
        Map<String, Long> counts = new TreeMap<>();
        REQUESTS.forEach((operation, count) -> counts.put(operation, count.sum()));
        return counts;
    }

    /** Bytes of request bodies ({@code bytes_out}), of answers ({@code bytes_in}), and answers of 400 and above. */
    public static Map<String, Long> traffic() {
        return Map.of("bytes_out", BYTES_OUT.sum(), "bytes_in", BYTES_IN.sum(), "errors", ERRORS.sum());
    }

    @Override
    public void beforeTransmission(Context.BeforeTransmission context, ExecutionAttributes attributes) {
        String operation = attributes.getAttribute(SdkExecutionAttribute.OPERATION_NAME);
        REQUESTS.computeIfAbsent(operation == null ? "unknown" : operation, each -> new LongAdder()).increment();
        BYTES_OUT.add(length(context.httpRequest().firstMatchingHeader("Content-Length").orElse(null)));
    }

    @Override
    public void afterTransmission(Context.AfterTransmission context, ExecutionAttributes attributes) {
        if (context.httpResponse().statusCode() >= 400) {
            ERRORS.increment();
        }
        // The answer to HEAD tells the length of a body that it does not have.
        if (context.httpRequest().method() != SdkHttpMethod.HEAD) {
            BYTES_IN.add(length(context.httpResponse().firstMatchingHeader("Content-Length").orElse(null)));
        }
    }

    private static long length(String header) {
        if (header == null) {
            return 0;
        }
        try {
            return Long.parseLong(header);
        } catch (NumberFormatException strange) {
            return 0;
        }
    }
}
