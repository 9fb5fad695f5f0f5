"""Check that the settings and commands that docs/comparison.md names exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from lakefeed.cli.main import root
from lakefeed.config.loading.explain import all_settings

DOCS = Path(__file__).parents[3] / "docs"
FIRST = "source|decode|schema|expect|dead_letters|transform|sink|sinks|trigger|tables|checkpoint|upkeep|catalogs|s3"
SETTING = re.compile(rf"`((?:{FIRST}|name)(?:\.(?:[a-z_0-9]+|<name>))*)`")


def here() -> Iterator[str]:
    """Yield the cells of the page's last column, which have lakefeed's settings."""
    for line in (DOCS / "comparison.md").read_text("utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| there"):
            yield line.rstrip("| ").rpartition(" | ")[2]


def test_the_settings_on_the_comparison_page_exist() -> None:
    known = {place for places in all_settings().values() for place in places}
    named = {each for cell in here() for each in SETTING.findall(cell)}
    assert len(named) > 60
    assert sorted(named - known - {"sinks.<name>"}) == []


def test_the_commands_on_the_comparison_page_exist() -> None:
    named = {each for cell in here() for each in re.findall(r"`lakefeed ([a-z-]+)", cell)}
    assert named
    assert named <= set(root.added())
