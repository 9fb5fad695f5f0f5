"""What happens to rows between decoding and the sink."""
