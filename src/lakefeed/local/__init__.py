"""The embedded stack: ``lakefeed local up`` and its servers."""

from lakefeed.local.part import PartStatus, Progress, StartStep
from lakefeed.local.stack import Endpoints, Stack

__all__ = ["Endpoints", "PartStatus", "Progress", "Stack", "StartStep"]
