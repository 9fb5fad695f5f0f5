/** Encodes rows as records: Avro and Protobuf, with Confluent's header. */
package io.lakefeed.encode;
