package io.lakefeed.decode;

import io.lakefeed.decode.RegistryClient.Patience;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;

/**
 * Sends one request if several tasks of a JVM need the same answer at the same time: one task's thread sends it, and
 * the threads of the other tasks wait.
 *
 * <p>Requests for different keys do not wait for each other.
 */
final class SingleFlight<K, V> {
    private final RegistryClient client;
    private final Map<K, CompletableFuture<V>> running = new ConcurrentHashMap<>();

    /** Sends the request, and stores its answer for the function {@code known}. */
    interface Request<V> {
        V answer() throws InterruptedException;
    }

    /** Creates an object for one type of request; {@code client} creates the error after a wait without an answer. */
    SingleFlight(RegistryClient client) {
        this.client = client;
    }

    /**
     * Returns the answer for {@code key}.
     *
     * @param known returns the stored answer, or null; another thread may store the answer at any time
     * @throws BadRecord if the answer is an error of the record
     * @throws RegistryException if the registry gives no answer
     */
    V answer(K key, Patience patience, Supplier<V> known, Request<V> request) {
        while (true) {
            CompletableFuture<V> mine = new CompletableFuture<>();
            CompletableFuture<V> other = running.putIfAbsent(key, mine);
            V found = other == null ? ask(key, mine, known, request) : await(other, patience);
            if (found != null) {
                return found;
            }
        }
    }

    private V ask(K key, CompletableFuture<V> mine, Supplier<V> known, Request<V> request) {
        try {
            V found = known.get();
            found = found != null ? found : request.answer();
            mine.complete(found);
            return found;
        } catch (InterruptedException stopped) {
            throw client.interrupted();
        } catch (BadRecord | RegistryException definite) {
            mine.completeExceptionally(definite);
            throw definite;
        } finally {
            running.remove(key);
            // No effect if the request has ended. If this thread was interrupted, null makes a waiting thread send it.
            mine.complete(null);
        }
    }

    /** Waits for the other thread's answer; returns null if the other thread was interrupted. */
    private V await(CompletableFuture<V> other, Patience patience) {
        try {
            return other.get(Math.max(0, patience.left()), TimeUnit.NANOSECONDS);
        } catch (ExecutionException failed) {
            throw (RuntimeException) failed.getCause();
        } catch (TimeoutException late) {
            throw client.silent(patience, "another thread is still waiting for it");
        } catch (InterruptedException stopped) {
            throw client.interrupted();
        }
    }
}
