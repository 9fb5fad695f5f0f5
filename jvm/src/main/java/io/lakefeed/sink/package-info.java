/** Writes tables and files with few S3 requests. */
package io.lakefeed.sink;
