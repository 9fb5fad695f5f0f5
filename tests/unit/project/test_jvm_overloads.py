"""No static Java method has the name of an instance method of its class, because py4j may call the wrong method."""

import re
from pathlib import Path

import pytest

JAVA = [file for file in Path(__file__).parents[3].rglob("jvm/src/main/java/**/*.java") if ".venv" not in file.parts]
METHOD = re.compile(r"^    public (?P<static>static )?(?:<.+?> )?[\w<>\[\], .?]+ (?P<name>\w+)\(", re.MULTILINE)


@pytest.mark.parametrize("source", sorted(JAVA), ids=lambda source: source.stem)
def test_no_static_method_has_the_name_of_an_instance_method(source: Path) -> None:
    static: set[str] = set()
    of_object: set[str] = set()
    for method in METHOD.finditer(source.read_text()):
        (static if method["static"] else of_object).add(method["name"])
    assert not static & of_object
