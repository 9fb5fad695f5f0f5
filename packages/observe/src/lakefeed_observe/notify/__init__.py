"""Messages about a running feed: when a message is sent, and how it reaches a webhook, a mailbox or a command."""

PAGE = "alerts"
"""The documentation page that errors of this package link to."""
