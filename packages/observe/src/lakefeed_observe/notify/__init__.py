"""Messages about a running feed: what is worth one, and how it reaches a webhook, a mailbox or a command."""

PAGE = "alerts"
"""The page that errors of this package name."""
