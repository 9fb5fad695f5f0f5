"""From bytes to rows, and back: sources, decoders, schemas, transforms, encoders."""
