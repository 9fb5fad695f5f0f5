"""The list of guards names code and tests that exist; ``make mutants`` shows that the tests fail without the guards."""

import pytest

from tools.guards import GUARDS, Guard
from tools.mutants import ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_where_the_list_says_and_has_its_tests(guard: Guard) -> None:
    source = (ROOT / guard.file).read_text("utf-8")
    assert guard.removed_from(source) != source
    for test in guard.tests:
        file, _, name = test.partition("::")
        assert not name or f"def {name}(" in (ROOT / file).read_text("utf-8"), f"there is no test {test}"


def test_a_guard_has_a_name_of_its_own() -> None:
    assert len({each.name for each in GUARDS}) == len(GUARDS)
