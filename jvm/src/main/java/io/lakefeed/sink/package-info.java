/** What tables are written with. */
package io.lakefeed.sink;
