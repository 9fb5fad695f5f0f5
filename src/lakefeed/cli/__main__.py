"""``python -m lakefeed.cli``."""

from lakefeed.cli import main

main()
