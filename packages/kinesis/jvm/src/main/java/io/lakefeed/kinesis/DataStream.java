package io.lakefeed.kinesis;

import java.io.UncheckedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import software.amazon.awssdk.core.exception.AbortedException;
import software.amazon.awssdk.core.exception.SdkClientException;
import software.amazon.awssdk.services.kinesis.model.ExpiredIteratorException;
import software.amazon.awssdk.services.kinesis.model.GetRecordsRequest;
import software.amazon.awssdk.services.kinesis.model.GetRecordsResponse;
import software.amazon.awssdk.services.kinesis.model.GetShardIteratorRequest;
import software.amazon.awssdk.services.kinesis.model.KinesisException;
import software.amazon.awssdk.services.kinesis.model.LimitExceededException;
import software.amazon.awssdk.services.kinesis.model.ListShardsRequest;
import software.amazon.awssdk.services.kinesis.model.ListShardsResponse;
import software.amazon.awssdk.services.kinesis.model.ProvisionedThroughputExceededException;
import software.amazon.awssdk.services.kinesis.model.ResourceNotFoundException;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.StreamDescriptionSummary;

/** Sends requests to one stream, waits if the stream throttles them, and reports failures that a user can act on. */
final class DataStream {
    private static final Pattern SHARD_ID = Pattern.compile("shardId-0*(\\d+)");
    private static final Set<String> DENIALS = Set.of(
            "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "InvalidClientTokenId",
            "ExpiredTokenException", "IncompleteSignatureException", "MissingAuthenticationTokenException", "OptInRequired");
    private static final long PATIENCE_MS = 60_000;

    private final StreamConnection connection;

    DataStream(StreamConnection connection) {
        this.connection = connection;
    }

    /**
     * A shard of the stream.
     *
     * @param number the number in the shard's id
     * @param open whether the shard can still receive records
     * @param parents the numbers of the shards that were split or merged into this shard
     */
    record Shard(int number, boolean open, List<Integer> parents) {}

    /** The id of a stream, and how long the stream keeps its records. */
    record Summary(String id, long retentionMs) {}

    static String shardId(int number) {
        return String.format("shardId-%012d", number);
    }

    /** Returns the summary. The stream's id is its creation time, so a recreated stream has a new id. */
    Summary summary() {
        StreamDescriptionSummary described = asked(() -> connection.client()
                .describeStreamSummary(request -> request.streamName(connection.stream()))
                .streamDescriptionSummary());
        Instant created = described.streamCreationTimestamp();
        return new Summary(String.valueOf(created), TimeUnit.HOURS.toMillis(described.retentionPeriodHours()));
    }

    /** Returns all shards that have records or can receive records. */
    List<Shard> shards() {
        List<Shard> shards = new ArrayList<>();
        String next = null;
        do {
            ListShardsRequest request = next == null
                    ? ListShardsRequest.builder().streamName(connection.stream()).build()
                    : ListShardsRequest.builder().nextToken(next).build();
            ListShardsResponse page = asked(() -> connection.client().listShards(request));
            page.shards().forEach(each -> shards.add(new Shard(
                    numberOf(each.shardId()),
                    each.sequenceNumberRange().endingSequenceNumber() == null,
                    Stream.of(each.parentShardId(), each.adjacentParentShardId())
                            .filter(Objects::nonNull)
                            .map(DataStream::numberOf)
                            .toList())));
            next = page.nextToken();
        } while (next != null);
        return shards;
    }

    /**
     * Returns an iterator of a shard, which starts at or after a sequence number, at a time, or at the oldest record.
     */
    String iterator(int shard, ShardIteratorType type, String sequenceNumber, Long since) {
        GetShardIteratorRequest.Builder request = GetShardIteratorRequest.builder()
                .streamName(connection.stream())
                .shardId(shardId(shard))
                .shardIteratorType(type)
                .startingSequenceNumber(sequenceNumber);
        if (since != null) {
            request.timestamp(Instant.ofEpochMilli(since));
        }
        return asked(() -> connection.client().getShardIterator(request.build()).shardIterator());
    }

    /**
     * Returns one page of a shard's records.
     *
     * @throws ExpiredIteratorException if the iterator is older than five minutes
     */
    GetRecordsResponse records(String iterator, int most) {
        GetRecordsRequest request =
                GetRecordsRequest.builder().shardIterator(iterator).limit(most).build();
        return asked(() -> connection.client().getRecords(request));
    }

    @Override
    public String toString() {
        return connection.toString();
    }

    private static int numberOf(String shardId) {
        Matcher id = SHARD_ID.matcher(shardId);
        if (!id.matches()) {
            throw new IllegalStateException("the shard " + shardId + " has no name of Kinesis's form shardId-000000000000");
        }
        return Integer.parseInt(id.group(1));
    }

    private <T> T asked(Supplier<T> request) {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        for (long pause = 200; ; pause = Math.min(2 * pause, 5_000)) {
            try {
                return request.get();
            } catch (ProvisionedThroughputExceededException | LimitExceededException tooMany) {
                // Requests can be refused without a fault of the feed: all readers of a shard together may read five
                // times a second.
                if (System.currentTimeMillis() > end) {
                    throw new StreamFailure("Kinesis throttles all requests to " + connection, tooMany);
                }
                waited(pause);
            } catch (ExpiredIteratorException renewable) {
                throw renewable;
            } catch (ResourceNotFoundException missing) {
                throw new StreamFailure("Kinesis has no such stream or shard: " + connection, missing);
            } catch (KinesisException refused) {
                String code = refused.awsErrorDetails() == null ? "" : refused.awsErrorDetails().errorCode();
                boolean denied = refused.statusCode() == 401 || refused.statusCode() == 403 || DENIALS.contains(code);
                String what = denied ? "Kinesis refuses the credentials" : "Kinesis refuses the request";
                throw new StreamFailure(what + " (" + code + "): " + connection, refused);
            } catch (AbortedException stopped) {
                throw new UncheckedIOException(new ClosedByInterruptException());
            } catch (SdkClientException away) {
                boolean unsigned = String.valueOf(away.getMessage()).contains("Unable to load credentials");
                String what = unsigned ? "Kinesis refuses the credentials (there are none)" : "Kinesis does not answer";
                throw new StreamFailure(what + ": " + connection, away);
            }
        }
    }

    private static void waited(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new UncheckedIOException(new ClosedByInterruptException());
        }
    }
}
