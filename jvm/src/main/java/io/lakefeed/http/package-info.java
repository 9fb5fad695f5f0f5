/** Sends HTTP requests with limits for the time and the size of the answer. */
package io.lakefeed.http;
