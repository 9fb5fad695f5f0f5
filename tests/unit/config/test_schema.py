import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from lakefeed.config.blocks import SinkChoice
from lakefeed.config.schema import json_schema
from tools.generate_docs import pipeline_reference

ROOT = Path(__file__).resolve().parents[3]


def test_generated_documents_are_up_to_date() -> None:
    # Run the tool in a new process, since click caches the help of a command that another test has called.
    command = [sys.executable, "-m", "tools.generate_docs", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json_schema()["$defs"][name]
    return found


def test_the_schema_requires_exactly_one_kind_of_sink() -> None:
    block, words = definition("SinkChoice")["anyOf"]
    assert block["oneOf"] == [{"required": [kind]} for kind in SinkChoice.kinds()]
    assert words == {"enum": ["memory", "console"]}


def test_the_schema_accepts_short_forms() -> None:
    decode, registry = definition("Decode"), definition("Registry")
    assert {"enum": ["json", "string", "raw"]} in decode["anyOf"]
    assert any(each.get("type") == "string" for each in registry["anyOf"])
    assert any(each.get("type") == "string" for each in definition("KafkaSource")["properties"]["topics"]["anyOf"])


def test_the_schema_accepts_variables_for_numbers_and_words() -> None:
    properties = definition("KafkaSource")["properties"]
    for name in ("max_records_per_batch", "deduplicate"):
        assert any("pattern" in each for each in properties[name]["anyOf"]), name


def test_the_schema_lists_kafkas_settings() -> None:
    options = definition("KafkaSource")["properties"]["options"]
    assert "kafka.max.poll.records" in options["properties"]
    assert options["additionalProperties"] is False


def test_the_schema_describes_all_settings() -> None:
    for name, each in json_schema()["$defs"].items():
        assert each.get("description"), name
        properties = each["properties"] if "properties" in each else each["anyOf"][0]["properties"]
        for key, value in properties.items():
            is_block = "$ref" in value or any("$ref" in part for part in value.get("anyOf", []))
            assert value.get("description") or is_block, f"{name}.{key}"


def test_the_reference_of_settings_names_types_without_pydantics_classes() -> None:
    text = pipeline_reference()
    assert "| `start` | text |" in text
    assert not re.search(r"ForwardRef|Annotated|typing\.|<class", text)
