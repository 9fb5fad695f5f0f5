"""The screen of ``lakefeed top``: all feeds as a table, one of them in full, and the keys."""

PAGE = "monitor"
