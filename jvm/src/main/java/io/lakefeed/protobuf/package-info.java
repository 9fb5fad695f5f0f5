/** Protobuf without generated code: schemas as text or as descriptors, and the wire format. */
package io.lakefeed.protobuf;
