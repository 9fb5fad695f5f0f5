"""Compare a ledger's methods with those of ``lakefeed.ledger.protocol.Ledger``."""

import inspect

from lakefeed.ledger.protocol import Ledger

METHODS = ("position", "commits", "take_fence", "fence_taken", "check", "record_move")


def require_protocol(ledger: type[Ledger]) -> None:
    """Fail if a method cannot be called as the protocol declares; further optional parameters are allowed."""
    for method in METHODS:
        declared, found = (inspect.signature(getattr(each, method)) for each in (Ledger, ledger))
        names = list(declared.parameters)
        assert list(found.parameters)[: len(names)] == names, method
        more = list(found.parameters)[len(names) :]
        assert all(found.parameters[each].default is not inspect.Parameter.empty for each in more), method
