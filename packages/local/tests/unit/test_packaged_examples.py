"""The packaged examples can be copied, and their commands name existing files and topics."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.config.loading.load import read
from lakefeed.config.problem import errors_of
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed_local.examples import PackagedExample, copy_example, packaged_example, packaged_examples

EXAMPLES = packaged_examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_copied_example_has_its_notes_and_all_files_that_its_commands_name(
    example: PackagedExample, tmp_path: Path
) -> None:
    copied = copy_example(example, tmp_path)
    assert copied
    for file in example.pipelines:
        assert example.description(file)
        notes = example.notes(file)
        assert list(notes) == ["Needs", "Gives", "Change"]
        assert "lakefeed" in notes["Needs"]
        assert all(len(note) > 10 and note.endswith(".") for note in notes.values())
        for command in example.commands(file):
            for named in re.findall(r"examples/\S+", command):
                assert (tmp_path / named).is_file(), command
        assert "yaml-language-server" not in (tmp_path / file).read_text()
        assert not errors_of(read(tmp_path / file, environment=None).problems)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_commands_create_topics_before_a_run_reads_them(example: PackagedExample) -> None:
    created: set[str] = set()
    for words in [command.split() for file in example.pipelines for command in example.commands(file)]:
        if words[:3] == ["lakefeed", "topics", "produce"] or words[:3] == ["lakefeed", "topics", "create"]:
            created.add(words[3])
        elif words[:2] == ["lakefeed", "run"]:
            document = yaml.safe_load((example.root / words[2]).read_text("utf-8"))
            read_from = document["source"].get("kafka", {}).get("topics", [])
            assert created.issuperset(read_from), words
            created.add(document["sink"].get("kafka", {}).get("topic"))


def test_a_copy_does_not_overwrite_a_changed_file(tmp_path: Path) -> None:
    example = packaged_example("word_count")
    copy_example(example, tmp_path)
    copy_example(example, tmp_path)
    (tmp_path / "examples/word_count/pipeline.yaml").write_text("mine")
    (tmp_path / "examples/data/sentences.jsonl").unlink()
    with pytest.raises(ConfigError, match="already exists with other content"):
        copy_example(example, tmp_path)
    assert not (tmp_path / "examples/data/sentences.jsonl").exists()


def test_an_unknown_name_suggests_a_similar_name() -> None:
    with pytest.raises(ResourceMissing) as missing:
        packaged_example("wordcount")
    assert missing.value.hint == "did you mean word_count?"


def test_the_commands_list_and_copy_examples(tmp_path: Path) -> None:
    listed = CliRunner().invoke(root, ["examples", "list"])
    assert all(example.name in listed.output for example in EXAMPLES)
    done = CliRunner().invoke(root, ["examples", "copy", "taxi", "--to", str(tmp_path), "--output", "json"])
    document = json.loads(done.output)
    assert [Path(file).is_file() for file in document["copied"]] == [True]
    assert document["pipelines"][0]["commands"][-1] == "lakefeed run examples/taxi/pipeline.yaml --once"
