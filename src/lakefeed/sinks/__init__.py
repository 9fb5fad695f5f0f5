"""The sinks of rows; each module declares the guarantee of its sink."""
