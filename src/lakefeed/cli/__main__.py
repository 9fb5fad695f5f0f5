"""Runs ``python -m lakefeed.cli``; in an image, spark-submit starts this file as the application."""

from lakefeed.cli import main

main()
