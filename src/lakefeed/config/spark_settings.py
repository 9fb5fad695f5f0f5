"""Find misspelt names of Spark's settings: Spark takes any name, and does nothing with it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.problem import Problem

FREE = re.compile(
    r"spark\.(hadoop|executorEnv|sql\.catalog|kubernetes|yarn|metrics|ui\.filters|\w+\.param)\b.*|.*\.param\..*"
)
"""Below these the user, or a package of another's, chooses the names."""

_NEAR = 0.93


@cache
def known() -> tuple[str, ...]:
    """Return the names that Spark registers, as ``tools/spark_settings.py`` has found them."""
    return tuple(files("lakefeed.config").joinpath("spark_settings.txt").read_text("utf-8").split())


def misspelt_settings(config: PipelineBlocks) -> Iterator[Problem]:
    """Warn of each setting that Spark does not register and that is a letter or two from one that it does.

    A name that is near to none may be another package's.
    """
    for key in config.spark:
        if key in known() or FREE.fullmatch(key):
            continue
        alike = [each for each in known() if each.count(".") == key.count(".") and abs(len(each) - len(key)) <= 2]
        if near := difflib.get_close_matches(key, alike, n=1, cutoff=_NEAR):
            what = f"Spark has no setting '{key}', and would ignore it"
            yield Problem(what=what, key=f"spark.{key}", hint=f"did you mean {near[0]}?", severity="warning")
