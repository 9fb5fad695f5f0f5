package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class SharedRequestsTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final int THREADS = 8;

    private final Map<String, String> answers = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> requests = new ConcurrentHashMap<>();
    private final CountDownLatch held = new CountDownLatch(1);
    private final ExecutorService serving = Executors.newCachedThreadPool();
    private final ExecutorService asking = Executors.newFixedThreadPool(THREADS);
    private HttpServer server;

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", this::answer);
        server.setExecutor(serving);
        server.start();
    }

    @AfterEach
    void stop() {
        held.countDown();
        asking.shutdownNow();
        server.stop(0);
        serving.shutdownNow();
    }

    private Registry registry() {
        return Registry.at("http://127.0.0.1:" + server.getAddress().getPort(), null, null, null);
    }

    private void answer(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        requests.computeIfAbsent(path, unseen -> new AtomicInteger()).incrementAndGet();
        try {
            held.await();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
        byte[] body = answers.getOrDefault(path, "{\"error_code\": 40403}").getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(answers.containsKey(path) ? 200 : 404, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    /** Runs the task in several threads at the same time; the registry answers when all threads wait. */
    private List<Future<?>> together(Runnable task) throws InterruptedException {
        CountDownLatch begun = new CountDownLatch(THREADS);
        List<Thread> threads = new ArrayList<>();
        List<Future<?>> running = new ArrayList<>();
        for (int number = 0; number < THREADS; number++) {
            running.add(asking.submit(() -> {
                synchronized (threads) {
                    threads.add(Thread.currentThread());
                }
                begun.countDown();
                task.run();
            }));
        }
        begun.await();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!threads.stream().allMatch(SharedRequestsTest::waits) && System.nanoTime() < deadline) {
            Thread.sleep(5);
        }
        held.countDown();
        return running;
    }

    private static boolean waits(Thread thread) {
        return thread.getState() == Thread.State.TIMED_WAITING || thread.getState() == Thread.State.WAITING;
    }

    @Test
    void tasksThatNeedTheSameSubjectsShareARequest() throws Exception {
        String path = "/schemas/ids/7/versions";
        answers.put(path, "[{\"subject\": \"trips-value\", \"version\": 1}]");
        Registry registry = registry();
        for (Future<?> each : together(() -> registry.requireSubject(7, Set.of("trips-value"), PATIENCE))) {
            each.get(30, TimeUnit.SECONDS);
        }
        registry.requireSubject(7, Set.of("trips-value", "other"), PATIENCE);
        assertEquals(1, requests.get(path).get());
        assertThrows(BadRecord.class, () -> registry.requireSubject(7, Set.of("other"), PATIENCE));
    }

    @Test
    void tasksThatNeedTheSameSchemaShareARequest() throws Exception {
        String path = "/schemas/ids/8";
        answers.put(path, "{\"schema\": \"\\\"int\\\"\"}");
        Registry registry = registry();
        for (Future<?> each : together(() -> registry.schema(8, PATIENCE, WriterSchema.AVRO))) {
            each.get(30, TimeUnit.SECONDS);
        }
        assertEquals(1, requests.get(path).get());
    }

    @Test
    void anInvalidReferenceIsNamed() {
        held.countDown();
        answers.put(
                "/schemas/ids/9",
                "{\"schemaType\": \"PROTOBUF\", \"schema\": \"message A {}\", \"references\":"
                        + " [{\"name\": \"b.proto\", \"subject\": \"b\", \"version\": 2}]}");
        answers.put("/subjects/b/versions/2", "{\"schemaType\": \"PROTOBUF\", \"schema\": \"enum E {\\n}\"}");
        Registry registry = registry();
        BadRecord wrong = assertThrows(BadRecord.class, () -> registry.schema(9, PATIENCE, WriterSchema.PROTOBUF));
        assertEquals(
                "version 2 of subject b, which schema id 9 refers to is not a valid Protobuf schema:"
                        + " line 1: the enum E has no value: add one",
                wrong.getMessage());
    }
}
