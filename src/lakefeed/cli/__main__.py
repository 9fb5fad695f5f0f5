"""Runs ``python -m lakefeed.cli``; in an image, this file is the application of spark-submit."""

from lakefeed.cli import main

main()
