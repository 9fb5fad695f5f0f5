package io.lakefeed.metrics;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class FeedGaugesTest {
    private final MetricRegistry registry = new MetricRegistry();
    private final MetricRegistry parent = new MetricRegistry();

    @BeforeEach
    void open() {
        FeedGauges.open(registry);
        parent.register("app", registry);
    }

    @AfterEach
    void close() {
        FeedGauges.close(registry);
    }

    private Object value(String name) {
        return parent.getGauges().get("app." + name).getValue();
    }

    @Test
    void numbersOfAFeedAreGauges() {
        FeedGauges.report("taxi", "lag_offsets 4100000000\nlag_seconds 1.5\n\nnonsense\n");
        FeedGauges.report("taxi_2", "lag_offsets 7");
        assertEquals(4_100_000_000L, value("taxi.lag_offsets"));
        assertEquals(1.5, value("taxi.lag_seconds"));
        assertEquals(7L, value("taxi_2.lag_offsets"));
        assertEquals(2, value("feeds"));
    }

    @Test
    void aNumberThatIsNoLongerReportedHasNoGauge() {
        FeedGauges.report("taxi", "lag_offsets 1\nlag_seconds 2");
        FeedGauges.report("taxi", "lag_offsets 3");
        assertEquals(3L, value("taxi.lag_offsets"));
        assertFalse(parent.getNames().contains("app.taxi.lag_seconds"));
    }

    @Test
    void reportsWithoutThePluginAreIgnored() {
        assertTrue(FeedGauges.isOpen());
        FeedGauges.close(registry);
        assertFalse(FeedGauges.isOpen());
        FeedGauges.report("taxi", "lag_offsets 1");
        FeedGauges.open(new MetricRegistry());
        assertTrue(FeedGauges.isOpen());
    }

    @Test
    void aNewMetricRegistryShowsTheFeed() {
        FeedGauges.report("taxi", "lag_offsets 1");
        MetricRegistry next = new MetricRegistry();
        FeedGauges.close(registry);
        FeedGauges.open(next);
        FeedGauges.report("taxi", "lag_offsets 2");
        assertEquals(2L, next.getGauges().get("taxi.lag_offsets").getValue());
        FeedGauges.close(next);
    }
}
