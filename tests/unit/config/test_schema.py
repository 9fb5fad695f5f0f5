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
    # A separate process: click caches what it made of a command that another test called.
    command = [sys.executable, "-m", "tools.generate_docs", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json_schema()["$defs"][name]
    return found


def test_blocks_hold_exactly_one_kind() -> None:
    block, words = definition("SinkChoice")["anyOf"]
    assert block["oneOf"] == [{"required": [kind]} for kind in SinkChoice.kinds()]
    assert words == {"enum": ["memory", "console"]}


def test_short_forms_are_let_through() -> None:
    decode, registry = definition("Decode"), definition("Registry")
    assert {"enum": ["string", "raw"]} in decode["anyOf"]
    assert any(each.get("type") == "string" for each in registry["anyOf"])
    assert any(each.get("type") == "string" for each in definition("KafkaSource")["properties"]["topics"]["anyOf"])


def test_numbers_and_words_can_come_from_the_environment() -> None:
    properties = definition("KafkaSource")["properties"]
    for name in ("max_records_per_batch", "deduplicate"):
        assert any("pattern" in each for each in properties[name]["anyOf"]), name


def test_kafka_settings_are_completed_by_name() -> None:
    options = definition("KafkaSource")["properties"]["options"]
    assert "kafka.max.poll.records" in options["properties"]
    assert options["additionalProperties"] is False


def test_every_setting_says_what_it_is_for() -> None:
    for name, each in json_schema()["$defs"].items():
        assert each.get("description"), name
        properties = each["properties"] if "properties" in each else each["anyOf"][0]["properties"]
        for key, value in properties.items():
            is_block = "$ref" in value or any("$ref" in part for part in value.get("anyOf", []))
            assert value.get("description") or is_block, f"{name}.{key}"


def test_the_reference_names_types_and_no_class_of_pydantic() -> None:
    text = pipeline_reference()
    assert "| `start` | text |" in text
    assert not re.search(r"ForwardRef|Annotated|typing\.|<class", text)
