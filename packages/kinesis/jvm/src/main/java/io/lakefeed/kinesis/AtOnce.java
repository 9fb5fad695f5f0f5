package io.lakefeed.kinesis;

import java.io.UncheckedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;

/** Runs a task for several shards concurrently, because reading a shard is mostly waiting for Kinesis. */
final class AtOnce implements AutoCloseable {
    private static final int THREADS = 8;

    private final ExecutorService threads = Executors.newFixedThreadPool(THREADS, task -> {
        Thread thread = new Thread(task, "lakefeed-kinesis");
        thread.setDaemon(true);
        return thread;
    });

    /** Runs the task for all shards and returns when it has ended for all of them; throws the first failure. */
    <T> void run(Collection<T> shards, Consumer<T> task) {
        List<Future<?>> running =
                shards.stream().<Future<?>>map(one -> threads.submit(() -> task.accept(one))).toList();
        try {
            for (Future<?> one : running) {
                one.get();
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new UncheckedIOException(new ClosedByInterruptException());
        } catch (ExecutionException failed) {
            throw failed.getCause() instanceof RuntimeException known ? known : new IllegalStateException(failed.getCause());
        } finally {
            running.forEach(one -> one.cancel(true));
        }
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
