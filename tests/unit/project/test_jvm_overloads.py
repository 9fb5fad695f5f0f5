"""py4j finds a method by its name only; if two methods share a name, it is undefined which one it calls."""

import re
from pathlib import Path

import pytest

JAVA = [file for file in Path(__file__).parents[3].rglob("jvm/src/main/java/**/*.java") if ".venv" not in file.parts]
METHOD = re.compile(r"^    public (?P<static>static )?(?:<.+?> )?[\w<>\[\], .?]+ (?P<name>\w+)\(", re.MULTILINE)


@pytest.mark.parametrize("source", sorted(JAVA), ids=lambda source: source.stem)
def test_no_static_method_shares_its_name_with_one_of_an_object(source: Path) -> None:
    static: set[str] = set()
    of_object: set[str] = set()
    for method in METHOD.finditer(source.read_text()):
        (static if method["static"] else of_object).add(method["name"])
    assert not static & of_object
