"""Tables as other engines see them."""
