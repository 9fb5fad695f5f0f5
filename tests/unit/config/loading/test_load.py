"""Loading a pipeline file."""

from pathlib import Path

import pytest

from lakefeed.config.loading.load import load
from lakefeed.errors import ConfigError
from tests.support.pipeline_text import ENVIRONMENT, GOOD, REGISTRY, TOPICS, Acceptor, Reader, problems


def test_a_good_file_has_no_problems(accepted: Acceptor) -> None:
    config = accepted()
    assert config.kafka.bootstrap_servers == "127.0.0.1:9092"
    assert config.decode.kind == "avro"


def more(option: str) -> tuple[str, str]:
    """Return the replacement that adds an option to the source."""
    return TOPICS, f"{TOPICS}    {option}\n"


# (text of GOOD, its replacement) -> (line, column, key, error, a part of the hint)
MISTAKES: list[tuple[str, str, int, int, str, str, str | None]] = [
    # misspelt or misplaced options
    (TOPICS, "    tpoics: [trips]\n", 5, 5, "source.kafka.tpoics", "unknown option 'tpoics'", "did you mean 'topics'?"),
    ("name: taxi", "name: taxi\ntopic: x", 2, 1, "topic", "unknown option 'topic'", "source.kafka.topics"),
    (*more("start_at: 1"), 6, 5, "source.kafka.start_at", "unknown option 'start_at'", "'start'?"),
    (*more("schema_file: a"), 6, 5, "source.kafka.schema_file", "unknown", "decode.avro.schema_file"),
    (*more("kafka.linger: 1"), 6, 5, "source.kafka.kafka.linger", "unknown", "source.kafka.options"),
    (*more("maxRecordsPerBatch: 1"), 6, 5, "source.kafka.maxRecordsPerBatch", "unknown", "max_records_per"),
    ("name: taxi", "name: taxi\nspark.x: 1", 2, 1, "spark.x", "unknown option", "the block spark"),
    ("name: taxi", "name: taxi\nqqq: 1", 2, 1, "qqq", "unknown option 'qqq'", "known here: name, source"),
    ("name: taxi", "name: taxi\n<<: {a: 1}", 2, 1, "<<", "unknown option", "merge keys"),
    # missing options
    ("name: taxi\n", "", 1, 1, "name", "'name' is missing", "name: taxi"),
    (TOPICS, "", 3, 3, "source.kafka", "either topics or topics_pattern", None),
    (
        "    table: lake.nyc.trips\n",
        "    partition_by: []\n",
        10,
        3,
        "sink.iceberg.table",
        "'table' is missing",
        "lake.",
    ),
    ("  iceberg:\n    table: lake.nyc.trips\n", "", 9, 6, "sink", "'sink' expects a block with iceberg", None),
    # wrong types
    (*more("max_records_per_batch: many"), 6, 28, "source.kafka.max_records_per_batch", "found 'many'", None),
    (*more("max_records_per_batch: 0"), 6, 28, "source.kafka.max_records_per_batch", "greater than 0", None),
    (
        TOPICS,
        "    topics: {a: 1}\n",
        5,
        13,
        "source.kafka.topics",
        "expects a list, each item text; found a block",
        None,
    ),
    (TOPICS, "    topics: [trips, 5]\n", 5, 21, "source.kafka.topics.1", "expects text; found '5'", "put it in quotes"),
    (TOPICS, "    topics: []\n", 5, 13, "source.kafka.topics", "expects at least 1 entry; found an empty list", None),
    (*more("start: latst"), 6, 5, "source.kafka.start", "is not a position to start at", "'latest'?"),
    ("name: taxi", "name: [a]", 1, 7, "name", "'name' expects text; found a list", None),
    # rules of the models
    ("name: taxi", "name: my-taxi", 1, 7, "name", "letters, digits and underscores", None),
    (TOPICS, "    topics: ['a,b']\n", 5, 14, "source.kafka.topics.0", "'a,b' cannot be a topic", "as a list"),
    (TOPICS, "    topics_pattern: '('\n", 5, 21, "source.kafka.topics_pattern", "not a regular expression", None),
    ("lake.nyc.trips", "trips", 11, 12, "sink.iceberg.table", "catalog.namespace.table", None),
    ("lake.nyc.trips", "other.nyc.trips", 11, 12, "sink.iceberg.table", "no catalog is called 'other'", "known: lake"),
    (
        "lake.nyc.trips\n",
        "lake.nyc.trips\n    partition_by:\n      - days(a)\n      - daze(b)\n",
        14,
        9,
        "sink.iceberg.partition_by.1",
        "'daze(b)' is not a partition transform",
        None,
    ),
    ("checkpoint: s3a:", "checkpoint: hdfs:", 12, 13, "checkpoint", "s3a://bucket/path", None),
    ("name: taxi", "name: taxi\ntrigger: soon", 2, 10, "trigger", "a trigger is", None),
    (REGISTRY, "    subject: a\n", 7, 3, "decode.avro", "avro requires a registry", None),
    (REGISTRY, "    registry: nowhere\n", 8, 15, "decode.avro.registry.url", "a registry is a URL", None),
    (
        REGISTRY,
        f"{REGISTRY}  raw: {{}}\n",
        6,
        1,
        "decode",
        "exactly one of avro, protobuf, json_schema, json, string, raw",
        None,
    ),
    (TOPICS, "    topics_pattern: tr.*\n", 7, 3, "decode.avro", "no subject names the schema", "decode.avro.subject"),
    (
        REGISTRY,
        f"{REGISTRY}    schema_file: no.avsc\n",
        9,
        18,
        "decode.avro.schema_file",
        "no.avsc does not exist",
        None,
    ),
    ("name: taxi", "name: taxi\nspark: {a: 1}", 2, 9, "spark.a", "'a' is not a Spark setting", "spark."),
    # Kafka client settings
    (
        *more("options:\n      kafka.max.pol.records: 5\n      startingOffsets: latest"),
        7,
        7,
        "source.kafka.options.kafka.max.pol.records",
        "unknown Kafka consumer setting",
        "'kafka.max.poll.records'?",
    ),
    (
        *more("options:\n      startingOffsets: latest"),
        7,
        7,
        "source.kafka.options.startingOffsets",
        "not a setting of Kafka's client",
        "source.kafka.start",
    ),
    (
        *more("options: {kafka.ssl.key.password: abcdef}"),
        6,
        39,
        "source.kafka.options.kafka.ssl.key.password",
        "holds a secret",
        "${KAFKA_SSL_KEY_PASSWORD}",
    ),
    # the environment
    (
        "${KAFKA_BOOTSTRAP_SERVERS}",
        "${NO}",
        4,
        24,
        "source.kafka.bootstrap_servers",
        "variable NO is not set",
        "export NO=",
    ),
    ("${KAFKA_BOOTSTRAP_SERVERS}", "${a b}", 4, 24, "source.kafka.bootstrap_servers", "no environment variable", "$$"),
    # YAML
    ("name: taxi", "name: taxi\nname: taxi", 2, 1, "name", "occurs twice", "line 1"),
    ("name: taxi", "name: taxi\n? [a]\n: b", 2, 3, "", "a key must be a plain word", None),
    ("name: taxi", "name: !thing taxi", 1, 7, "name", "the tag !thing has no meaning", None),
    ("name: taxi", "name: a: b", 1, 8, "", "mapping values are not allowed", "quotes"),
    ("    topics", "\ttopics", 5, 1, "", "a tab where YAML requires spaces", "spaces"),
    (TOPICS, "    topics: [trips\n", 6, 7, "", "not YAML", None),
    (TOPICS, "    topics: *who\n", 5, 13, "", "undefined alias", "&name"),
    ("checkpoint: ", "---\ncheckpoint: ", 12, 1, "", "a second document", "---"),
    ("name: taxi", "name: ta\x07xi", 1, 9, "", "#x0007", None),
]


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "key", "what", "hint"), MISTAKES, ids=[f"{m[4]}-{m[5]}" for m in MISTAKES]
)
def test_each_mistake_is_reported_at_its_place(
    reading: Reader, old: str, new: str, line: int, column: int, key: str, what: str, hint: str | None
) -> None:
    config, found = reading(replace=(old, new))
    assert config is None
    shown = "\n".join(map(str, found))
    fitting = [each for each in found if what in each.what]
    assert fitting, shown
    problem = fitting[0]
    assert (problem.line, problem.column, problem.key) == (line, column, key), shown
    assert problem.severity == "error"
    if hint is not None:
        assert hint in (problem.hint or ""), shown


def test_contradictions_between_blocks_are_reported_in_one_run(reading: Reader) -> None:
    text = GOOD.replace("checkpoint: s3a://lake/checkpoints/taxi\n", "upkeep: {}\n")
    text = text.replace("  iceberg:\n    table: lake.nyc.trips\n", "  kafka: {topic: trips}\n")
    _, found = reading(f"{text}expect: {{sane: {{rule: 'a > 0', on_violation: dead_letter}}}}\n")
    assert [each.what.partition(" ")[2] for each in found] == [
        "makes dead letters, and the block dead_letters is missing",
        "is the topic trips, which the source reads: the feed would read its own rows",
        "pipeline needs a checkpoint: sink.kafka does not store where the feed resumes, and with which schema",
        "maintains Iceberg tables, and this pipeline writes to none",
    ]


def test_mistakes_in_options_and_missing_variables_are_reported_in_one_run(reading: Reader) -> None:
    options = "    options: {kafka.fetch.min.bytes: x, kafka.client.id: '${NO}', a: 1, kafka.check.crcs: [1]}\n"
    _, found = reading(replace=(TOPICS, TOPICS + options))
    keys = [each.key.removeprefix("source.kafka.options.") for each in found]
    assert keys == ["kafka.fetch.min.bytes", "kafka.client.id", "a", "kafka.check.crcs"]


def test_a_misspelt_key_is_not_also_reported_as_missing(reading: Reader) -> None:
    _, found = reading(replace=("bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}", "bootstrap_server: a:1"))
    assert [each.what for each in found] == ["unknown option 'bootstrap_server' in 'source.kafka'"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n- b\n", "a pipeline file expects a block"),
        ("taxi\n", "a pipeline file expects a block"),
    ],
)
def test_a_file_without_a_pipeline_is_refused_at_its_first_line(reading: Reader, text: str, what: str) -> None:
    config, found = reading(text)
    assert config is None
    assert what in found[0].what
    assert (found[0].line, found[0].column) == (1, 1)


def test_a_missing_file_a_folder_and_binary_content_are_refused(tmp_path: Path) -> None:
    [missing] = problems(tmp_path / "no.yaml")[1]
    assert missing.what == "there is no such file"
    assert "lakefeed init" in (missing.hint or "")
    [folder] = problems(tmp_path)[1]
    assert folder.what.startswith("cannot be read")
    (tmp_path / "p.yaml").write_bytes(b"name: a\nb: \xff\n")
    [binary] = problems(tmp_path / "p.yaml")[1]
    assert (binary.line, binary.column, binary.what) == (2, 4, "not UTF-8 text")


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(accepted: Acceptor) -> None:
    accepted("\ufeff" + GOOD.replace("\n", "\r\n"))


BOMB = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
BOMB += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
LIMITS = {
    "larger than 1024 KiB": "# " + "x" * (1 << 20),
    "nested deeper": "a: " + "[" * 2000 + "]" * 2000,
    "more than 100 aliases": "a: &a 1\nb: [" + "*a, " * 200 + "]",
    "more than 20,000 settings": "\n".join(BOMB),
    "contains itself": "a: &a [*a]",
    "has no meaning here": GOOD.replace("name: taxi", "name: !!python/object/apply:os.system [id]"),
}


@pytest.mark.parametrize("what", LIMITS)
def test_a_text_beyond_the_limits_of_yaml_is_refused(reading: Reader, what: str) -> None:
    _, found = reading(LIMITS[what])
    assert what in found[0].what


def test_load_raises_one_error_for_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace("name: taxi", "nam: taxi").replace("trips]", "'t t']"))
    with pytest.raises(ConfigError) as caught:
        load(path, environment=ENVIRONMENT)
    assert f"{path}:1:1: error: unknown option 'nam'" in str(caught.value)
    assert f"{path}:5:14: error: 't t' cannot be a topic" in str(caught.value)


def test_load_raises_a_single_problem_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace("name: taxi", "nam: taxi"))
    with pytest.raises(ConfigError) as caught:
        load(path, environment=ENVIRONMENT)
    assert caught.value.what == "unknown option 'nam'"
    assert caught.value.where == f"{path}:1:1 (nam)"


def test_a_wrong_variable_of_the_environment_is_reported(reading: Reader) -> None:
    _, found = reading(environment={**ENVIRONMENT, "AWS_ACCESS_KEY_ID": "only-one"})
    assert [(each.file, each.what) for each in found] == [
        ("the AWS variables of the environment", "access_key and secret_key belong together: give both or none")
    ]


def test_the_examples_of_the_guide_have_no_mistakes(accepted: Acceptor) -> None:
    guide = (Path(__file__).resolve().parents[4] / "docs" / "pipeline-files.md").read_text("utf-8")
    pipeline, options = (block.partition("```")[0] for block in guide.split("```yaml\n")[1:])
    environment = {**ENVIRONMENT, "SCHEMA_REGISTRY_URL": "http://127.0.0.1:1"}
    config = accepted(pipeline.replace("decode:", f"{options}decode:"), environment=environment)
    assert "kafka.client.rack" in config.kafka.options


class TestFormats:
    """Settings of ``decode`` for each format, and the errors for wrong ones."""

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
            "  string:\n",
            "  raw:\n  key: {avro: {registry: http://127.0.0.1:1}}\n  metadata: [key]\n",
            "  raw:\n  key: string\n",
        ],
    )
    def test_a_correct_format_is_accepted(self, accepted: Acceptor, tmp_path: Path, block: str) -> None:
        self.files(tmp_path)
        accepted(replace=(self.AVRO, block))

    @pytest.mark.parametrize(
        ("block", "key", "what", "hint"),
        [
            ("  protobuff: {}\n", "decode.protobuff", "unknown option 'protobuff'", "'protobuf'?"),
            ("  json-schema: {}\n", "decode.json-schema", "unknown option", "'json_schema'?"),
            ("  protobuf: {}\n", "decode.protobuf", "either a registry (values with", None),
            (
                "  protobuf: {schema_file: several.proto}\n",
                "decode.protobuf",
                "several.proto has several messages",
                "add message: NAME; the file has One, Two",
            ),
            (
                "  protobuf: {schema_file: trip.proto, message: Tripp}\n",
                "decode.protobuf.message",
                "trip.proto has no message 'Tripp'",
                "the file has Trip",
            ),
            ("  protobuf: {schema_file: none.proto}\n", "decode.protobuf.schema_file", "does not exist", None),
            ("  protobuf: {schema_file: empty.proto}\n", "decode.protobuf.schema_file", "defines no message", None),
            ("  json_schema: {}\n", "decode.json_schema.registry", "'registry' is missing", None),
            ("  json: {schema: guess}\n", "decode.json.schema", "expects one of sample", None),
            (
                "  json: {schema_ddl: id INT, schema: sample}\n",
                "decode.json",
                "one of schema_ddl, schema_file and schema: sample",
                None,
            ),
            ("  raw:\n  key: {json: {schema: sample}}\n", "decode.key", "the schema of keys cannot be sampled", None),
            ("  raw:\n  key: {avrro: {}}\n", "decode.key.avrro", "unknown option 'avrro'", "'avro'?"),
        ],
    )
    def test_a_wrong_format_is_reported_at_its_key(
        self, reading: Reader, tmp_path: Path, block: str, key: str, what: str, hint: str | None
    ) -> None:
        self.files(tmp_path)
        _, found = reading(replace=(self.AVRO, block))
        problem = next(each for each in found if each.key == key)
        assert what in problem.what
        assert hint is None or hint in (problem.hint or "")
        assert problem.line is not None

    def test_topics_pattern_requires_a_subject_for_keys_too(self, reading: Reader) -> None:
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
