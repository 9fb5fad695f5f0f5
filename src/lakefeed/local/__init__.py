"""The embedded stack: ``lakefeed local up`` and its servers."""

from lakefeed.local.endpoints import Endpoints
from lakefeed.local.part import PartStatus, Progress, StartStep
from lakefeed.local.stack import Stack

__all__ = ["Endpoints", "PartStatus", "Progress", "Stack", "StartStep"]
