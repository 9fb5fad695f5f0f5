/** HTTP exchanges that end: in time, and in size. */
package io.lakefeed.http;
