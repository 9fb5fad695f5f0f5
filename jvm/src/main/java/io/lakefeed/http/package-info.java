/** HTTP exchanges that are bounded in time and in size. */
package io.lakefeed.http;
