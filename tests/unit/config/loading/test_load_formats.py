"""The block ``decode``: every format, right and wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pipeline_text import GOOD, REGISTRY, TOPICS, Reader


class TestFormats:
    """What may stand in ``decode`` for each format, and what is said where it is wrong."""

    AVRO = f"  avro:\n{REGISTRY}"

    @pytest.mark.parametrize(
        "block",
        [
            "  protobuf: {registry: http://127.0.0.1:1, message: Trip}\n",
            "  protobuf: {schema_file: trip.proto}\n",
            "  protobuf: {schema_file: several.proto, message: b.Two}\n",
            "  protobuf: {schema_file: set.desc, message: b.Two}\n",
            "  json_schema: {registry: http://127.0.0.1:1, lenient: true}\n",
            "  json: {schema: sample, sample_records: 50, lenient: true}\n",
            '  csv: {schema_ddl: "a INT", delimiter: "\\t", null_value: "NULL"}\n',
            "  string:\n",
            "  raw:\n  key: {avro: {registry: http://127.0.0.1:1}}\n  metadata: [key]\n",
            "  raw:\n  key: string\n",
        ],
    )
    def test_right_blocks(self, reading: Reader, tmp_path: Path, block: str) -> None:
        self.files(tmp_path)
        config, found = reading(replace=(self.AVRO, block))
        assert found == []
        assert config is not None

    @pytest.mark.parametrize(
        ("block", "key", "what", "hint"),
        [
            ("  protobuff: {}\n", "decode.protobuff", "unknown option 'protobuff'", "'protobuf'?"),
            ("  json-schema: {}\n", "decode.json-schema", "unknown option", "'json_schema'?"),
            ("  protobuf: {}\n", "decode.protobuf", "either a registry (framed values) or a schema_file", None),
            (
                "  protobuf: {schema_file: several.proto}\n",
                "decode.protobuf",
                "several.proto has several messages",
                "add message: NAME; it has One, Two",
            ),
            (
                "  protobuf: {schema_file: trip.proto, message: Tripp}\n",
                "decode.protobuf.message",
                "trip.proto has no message 'Tripp'",
                "it has Trip",
            ),
            ("  protobuf: {schema_file: none.proto}\n", "decode.protobuf.schema_file", "does not exist", None),
            ("  protobuf: {schema_file: empty.proto}\n", "decode.protobuf.schema_file", "defines no message", None),
            ("  json_schema: {}\n", "decode.json_schema.registry", "'registry' is missing", None),
            ("  json: {schema: guess}\n", "decode.json.schema", "expects one of sample", None),
            ("  json: {}\n", "decode.json", "one of schema_ddl, schema_file and schema: sample", None),
            ("  csv: {}\n", "decode.csv", "either schema_ddl or schema_file", None),
            ('  csv: {schema_ddl: a INT, delimiter: ";;"}\n', "decode.csv.delimiter", "one ASCII character", None),
            ('  csv: {schema_ddl: a INT, quote: ","}\n', "decode.csv", "the same character", None),
            ("  raw:\n  key: {json: {schema: sample}}\n", "decode.key", "keys are not sampled", None),
            ("  raw:\n  key: {avrro: {}}\n", "decode.key.avrro", "unknown option 'avrro'", "'avro'?"),
        ],
    )
    def test_wrong_blocks(
        self, reading: Reader, tmp_path: Path, block: str, key: str, what: str, hint: str | None
    ) -> None:
        self.files(tmp_path)
        _, found = reading(replace=(self.AVRO, block))
        problem = next(each for each in found if each.key == key)
        assert what in problem.what
        assert hint is None or hint in (problem.hint or "")
        assert problem.line is not None

    def test_a_pattern_requires_a_subject_for_keys_too(self, reading: Reader) -> None:
        blocks = "  json_schema: {registry: http://127.0.0.1:1}\n  key: {protobuf: {registry: http://127.0.0.1:1}}\n"
        text = GOOD.replace(TOPICS, "    topics_pattern: tr.*\n")
        _, found = reading(text, replace=(self.AVRO, blocks))
        assert [each.key for each in found] == ["decode.json_schema", "decode.key.protobuf"]
        assert "<topic>-key" in (found[1].hint or "")

    @staticmethod
    def files(folder: Path) -> None:
        (folder / "trip.proto").write_text(
            'syntax = "proto3"; message Trip { message Stop { int32 a = 1; } Stop s = 1; }'
        )
        (folder / "several.proto").write_text("package b; message One {} // message Not {}\nmessage Two {}")
        (folder / "empty.proto").write_text("/* message Not {} */")
        (folder / "set.desc").write_bytes(b"\n")
