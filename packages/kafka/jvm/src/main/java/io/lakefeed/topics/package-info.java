/** Writes rows as records of a topic, whose headers identify copies. */
package io.lakefeed.topics;
