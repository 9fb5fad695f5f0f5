"""The list of guards names existing code and tests; ``make mutants`` shows that the tests fail without the guards."""

import pytest

from tools.guards import GUARDS, Guard
from tools.source_tree import ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_source_and_the_tests_of_a_guard_exist(guard: Guard) -> None:
    source = (ROOT / guard.file).read_text("utf-8")
    assert guard.removed_from(source) != source
    for test in guard.tests:
        file, _, name = test.partition("::")
        assert not name or f"def {name}(" in (ROOT / file).read_text("utf-8"), f"there is no test {test}"


def test_guards_have_different_names() -> None:
    assert len({each.name for each in GUARDS}) == len(GUARDS)
