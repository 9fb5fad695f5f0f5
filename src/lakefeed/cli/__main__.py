"""``python -m lakefeed.cli``; in an image the application that spark-submit starts."""

from lakefeed.cli import main

main()
