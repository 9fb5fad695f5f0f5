"""An error names the page of the documentation about its problem."""

import importlib.util
import json
from pathlib import Path

import pytest

import lakefeed
from lakefeed.cli.main import main
from lakefeed.config.loading import nodes
from lakefeed.config.loading.explain import type_at
from lakefeed.messages.pages import pages
from tests.support.pipeline_text import ENVIRONMENT, GOOD

DOCS = Path(__file__).parents[3] / "docs"

TABLE = "    table: lake.nyc.trips\n"
AVRO = "  avro:\n    registry: http://127.0.0.1:1\n"
SINK = f"  iceberg:\n{TABLE}"
BROKERS = "${KAFKA_BOOTSTRAP_SERVERS}"
# Each mistake of a new user: a part of the file, its replacement, and the page that helps.
MISTAKES = [
    ("source:", "sorce:", "pipeline-files"),
    ("topics:", "topic:", "sources"),
    ("[trips]", "[trips, trips]", "sources"),
    ("[trips]", "{pattern: a.*}", "sources"),
    (BROKERS, "${NO_SUCH_VARIABLE}", "pipeline-files"),
    (BROKERS, "broker", "check"),
    ("    topics", "    start: yesterday\n    topics", "offsets"),
    ("    topics", "    options: {kafka.max.pol.records: 5}\n    topics", "pipeline-files"),
    ("    topics", "    options: {kafka.sasl.jaas.config: none}\n    topics", "secure-connections"),
    ("    topics", "    login: {scram: {user: a}}\n    topics", "secure-connections"),
    (AVRO, "  orc: {}\n", "decode"),
    (AVRO, "  json: {schema: a strng}\n", "decode-formats"),
    (AVRO, "  protobuf: {}\n", "decode-formats"),
    ("  avro:\n", "  avro:\n    subjct: a\n", "decode-formats"),
    ("iceberg:", "icberg:", "sinks"),
    (SINK, "  delta: {table: a}\n", "delta"),
    (SINK, "  hudi: {table: a}\n", "sinks"),
    (SINK, "  jdbc: {url: 'jdbc:oracle:x', table: t}\n", "jdbc"),
    ("table:", "tabel:", "layout"),
    (TABLE, f"{TABLE}    format_version: 9\n", "layout"),
    (TABLE, f"{TABLE}    partition_by: [hurs(ts)]\n", "layout"),
    (TABLE, f"{TABLE}    mode: upsert\n", "upserts"),
    ("lake.nyc.trips", "trips", "catalogs"),
    ("lake.nyc.trips", "prod.nyc.trips", "catalogs"),
    ("checkpoint:", "catalogs: {lake: {type: glu}}\ncheckpoint:", "catalogs"),
    ("s3a://lake/checkpoints/taxi", "gs://lake/taxi", "offsets"),
    ("name:", "trigger: 1 minut\nname:", "run"),
    ("name:", "trigger: real-time\nname:", "run"),
    ("name:", "transform: {sql: SELECT * FROM a; SELECT 1}\nname:", "transforms"),
    ("name:", "transform: {python: 'm:f'}\nname:", "transforms"),
    ("name:", "expect: {a: {rule: x > 1, on_violation: dead_letter}}\nname:", "dead-letters"),
    ("name:", "dead_letters: {table: lake.nyc.trips}\nname:", "dead-letters"),
    ("name:", "dead_letters: {table: lake.nyc.d, budget: 200%}\nname:", "dead-letters"),
    ("name:", "schema: {on_change: evolv}\nname:", "schema-evolution"),
    ("name:", "notify: {targets: {a: {webhok: {}}}}\nname:", "alerts"),
    ("name:", "dashboard: {host: 0.0.0.0}\nname:", "dashboard"),
    ("name:", "upkeep: {every: dayly}\nname:", "upkeep"),
    ("name:", "metrics: {port: 99999}\nname:", "metrics"),
    ("name:", "tls: {ca: ca.pem}\nname:", "secure-connections"),
    ("name: ", "\tname: ", "pipeline-files"),
    (GOOD, "- name\n", "pipeline-files"),
]
COMMANDS = [
    (["plan", "no-such.yaml"], "pipeline-files"),
    (["plan", "pipeline.yaml", "--set", "sink"], "pipeline-files"),
    (["read", "pipeline.yaml", "--range", "x"], "read-and-backfill"),
    (["dead-letters", "list", "pipeline.yaml"], "dead-letters"),
    (["test", "pipeline.yaml"], "test-a-pipeline"),
    (["init", "--topic", "trips"], "pipeline-files"),
]


@pytest.mark.parametrize(("old", "new", "page"), MISTAKES, ids=[new[:50] for _, new, _ in MISTAKES])
def test_the_error_for_a_mistake_in_a_file_names_its_page(
    old: str, new: str, page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert old in GOOD
    (tmp_path / "pipeline.yaml").write_text(GOOD.replace(old, new, 1))
    assert page_named_by(["plan", "pipeline.yaml"], tmp_path, capsys, monkeypatch) == f"lakefeed docs {page}"


@pytest.mark.parametrize(("command", "page"), COMMANDS)
def test_the_error_for_a_mistake_in_a_command_names_its_page(
    command: list[str], page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline.yaml").write_text(GOOD)
    assert page_named_by(command, tmp_path, capsys, monkeypatch) == f"lakefeed docs {page}"


def page_named_by(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.chdir(folder)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--output", "json"])
    page: str = json.loads(capsys.readouterr().out)["page"]
    return page


def test_everything_that_pages_toml_names_exists() -> None:
    settings, modules = pages()["settings"], pages()["modules"]
    source = "".join(file.read_text("utf-8") for file in Path(lakefeed.__path__[0]).rglob("*.py"))
    assert [words for words in pages()["texts"] if words not in source] == []
    for page in {*pages()["texts"].values(), *settings.values(), *modules.values()}:
        assert (DOCS / f"{page}.md").is_file(), page
    for module in modules:
        assert importlib.util.find_spec(f"{lakefeed.__name__}.{module}") is not None, module
    for setting in settings:
        *block, name = setting.split(".")
        assert name in nodes.fields(nodes.model_of(type_at(tuple(block)))), setting
