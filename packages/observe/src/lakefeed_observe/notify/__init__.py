"""Messages about a running feed: when to send one, and how to deliver it to a webhook, a mailbox or a command."""

PAGE = "alerts"
"""The documentation page that errors of this package link to."""
