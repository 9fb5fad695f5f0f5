"""The screen of ``lakefeed top``: a table of all feeds, the details of one feed, and the keys."""

PAGE = "monitor"
