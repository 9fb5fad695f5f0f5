package io.lakefeed.http;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow.Subscription;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Sends a request and waits for the whole answer, with a limit for its time and its size.
 *
 * <p>The timeout of {@link HttpRequest} covers only the answer's headers, and nothing limits the size of the body. So a
 * server that sends one byte a second would block the caller, and a server that sends without end would fill the
 * memory.
 */
public final class WholeAnswer {
    private WholeAnswer() {}

    /**
     * Sends a request and reads the answer.
     *
     * @param within the most time from connecting to the last byte of the body
     * @param most the most bytes of the body
     * @throws HttpTimeoutException if the answer takes longer than {@code within}
     * @throws IOException if the server is unavailable, the answer is incomplete, or its body has more than {@code
     * most} bytes
     */
    public static HttpResponse<byte[]> of(HttpClient http, HttpRequest request, Duration within, int most)
            throws IOException, InterruptedException {
        Bounded body = new Bounded(most);
        CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(request, headers -> body);
        try {
            return answer.get(within.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException late) {
            throw new HttpTimeoutException("the answer was not complete within " + within.toMillis() + " ms");
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof IOException broken) {
                throw broken;
            }
            throw new IOException(failed.getCause());
        } finally {
            // For an incomplete answer, this closes the connection.
            answer.cancel(true);
            body.close();
        }
    }

    private static final class Bounded implements BodySubscriber<byte[]> {
        private final CompletableFuture<byte[]> whole = new CompletableFuture<>();
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final int most;
        private volatile Subscription source;
        private volatile boolean closed;

        Bounded(int most) {
            this.most = most;
        }

        @Override
        public CompletionStage<byte[]> getBody() {
            return whole;
        }

        @Override
        public void onSubscribe(Subscription subscription) {
            source = subscription;
            if (closed) {
                subscription.cancel();
            } else {
                subscription.request(Long.MAX_VALUE);
            }
        }

        @Override
        public void onNext(List<ByteBuffer> pieces) {
            for (ByteBuffer piece : pieces) {
                if (closed || whole.isDone()) {
                    return;
                }
                if (piece.remaining() > most - bytes.size()) {
                    source.cancel();
                    whole.completeExceptionally(new IOException("the answer has more than " + most + " bytes"));
                    return;
                }
                byte[] copy = new byte[piece.remaining()];
                piece.get(copy);
                bytes.writeBytes(copy);
            }
        }

        @Override
        public void onError(Throwable broken) {
            whole.completeExceptionally(broken);
        }

        @Override
        public void onComplete() {
            whole.complete(bytes.toByteArray());
        }

        void close() {
            closed = true;
            Subscription open = source;
            if (open != null && !whole.isDone()) {
                open.cancel();
            }
        }
    }
}
