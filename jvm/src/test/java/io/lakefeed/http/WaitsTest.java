package io.lakefeed.http;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class WaitsTest {
    @Test
    void waitsAreShownUntilTheyEnd() {
        Waits.began("http://r", "HTTP status 503");
        assertEquals("http://r: HTTP status 503", Waits.any());
        Waits.putExecutor("app 1", "http://r: no connection");
        assertEquals("http://r: HTTP status 503", Waits.any());
        Waits.ended("http://r");
        assertEquals("http://r: no connection", Waits.any());
        assertEquals("", Waits.own());
        Waits.putExecutor("app 1", "");
        assertEquals("", Waits.any());
    }
}
