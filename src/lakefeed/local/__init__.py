"""The embedded stack: ``lakefeed local up`` and what it is made of."""

from lakefeed.local.endpoints import Endpoints
from lakefeed.local.report import PartStatus, StartStep
from lakefeed.local.stack import Stack

__all__ = ["Endpoints", "PartStatus", "Stack", "StartStep"]
