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
 * Sends one request when several tasks of a JVM need the same answer at once: one thread asks, the others wait.
 *
 * <p>No lock is held while a thread asks or waits, so requests for other keys continue.
 */
final class SingleFlight<K, V> {
    private final RegistryClient client;
    private final Map<K, CompletableFuture<V>> running = new ConcurrentHashMap<>();

    /** Asks the registry, and stores the answer for {@code known}. */
    interface Request<V> {
        V answer() throws InterruptedException;
    }

    /** Creates it for a registry, whose client has the errors for a wait without an answer. */
    SingleFlight(RegistryClient client) {
        this.client = client;
    }

    /**
     * Returns the answer for {@code key}.
     *
     * @param known returns the answer that another thread has stored since the caller looked; null if there is none
     * @throws BadRecord if that is the answer, also where another thread asked
     * @throws RegistryException if there is no answer
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
            // If this thread is interrupted, one of the waiting threads asks.
            mine.complete(null);
        }
    }

    /** Returns the answer that another thread gets; null if that thread is interrupted before. */
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
