"""``lakefeed check`` checks the options of a sink of another package."""

import os
from pathlib import Path

import pytest

from tests.support.cli import lakefeed
from tests.support.sink_package import install

FILE = """\
name: taxi
source: {kafka: {bootstrap_servers: "broker:9092", topics: [orders]}}
decode: raw
sink:
  sqlite_archive:
    path: rows.db
    table: orders
checkpoint: s3a://bucket/checkpoint
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("package"))


def check(folder: Path, text: str, *options: str, site: Path | None = None) -> tuple[int, str]:
    file = folder / "pipeline.yaml"
    file.write_text(text)
    path = os.environ.get("PYTHONPATH", "")
    environment = {} if site is None else {"PYTHONPATH": f"{site}{os.pathsep}{path}"}
    done = lakefeed("check", file, *options, environment=environment, status=None)
    return done.returncode, (done.stdout + done.stderr).replace(str(file), "pipeline.yaml")


def test_a_correct_block_of_an_installed_sink_passes(tmp_path: Path, site: Path) -> None:
    status, said = check(tmp_path, FILE, site=site)
    assert (status, "error" in said) == (0, False), said


def test_a_misspelt_option_is_reported_with_its_line_and_the_nearest_name(tmp_path: Path, site: Path) -> None:
    status, said = check(tmp_path, FILE.replace("table:", "tabel:"), site=site)
    assert status == 2
    assert "pipeline.yaml:7:5: error: unknown option 'tabel' in 'sink.sqlite_archive'" in said
    assert "did you mean 'table'?" in said


@pytest.mark.waits
def test_a_missing_option_and_a_wrong_value_are_reported_in_one_run(tmp_path: Path, site: Path) -> None:
    text = FILE.replace("    path: rows.db\n", "").replace("table: orders", "table: Orders!")
    status, said = check(tmp_path, text, site=site)
    assert status == 2
    assert "'path' is missing in 'sink.sqlite_archive'" in said
    assert "pipeline.yaml:6:12: error: 'table'" in said


def test_the_options_of_a_further_sink_of_another_package_are_checked(tmp_path: Path, site: Path) -> None:
    beside = (
        "sink: {iceberg: {table: lake.a.b}}\nsinks:\n  copy:\n    on_failure: pause\n    sqlite_archive: {pat: x}\n"
    )
    text = f"{FILE[: FILE.index('sink:')]}{beside}checkpoint: s3a://bucket/c\ncatalogs: {{lake: {{uri: http://c}}}}\n"
    status, said = check(tmp_path, text, site=site)
    assert status == 2
    assert "unknown option 'pat' in 'sinks.copy.sqlite_archive'" in said


def test_the_error_for_an_unknown_sink_lists_the_installed_sinks(tmp_path: Path) -> None:
    status, said = check(tmp_path, FILE)
    assert status == 2
    assert "pipeline.yaml:5:3: error: no such sink: 'sqlite_archive'" in said
    assert "installed: iceberg, parquet, files, memory, console, format, python" in said
    assert said.count("error:") == 1


@pytest.mark.waits
def test_the_error_for_an_unknown_sink_lists_sinks_of_packages(tmp_path: Path, site: Path) -> None:
    _, said = check(tmp_path, FILE.replace("sqlite_archive", "clickhouse"), site=site)
    assert "no such sink: 'clickhouse'" in said
    assert ", sqlite_archive;" in said


@pytest.mark.waits
def test_a_package_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    broken = install(tmp_path / "package")
    (broken / "lakefeed_sqlite_archive" / "settings.py").write_text("import a_driver_that_is_missing\n")
    status, said = check(tmp_path, FILE, site=broken)
    assert status == 2
    assert "the package of the sink 'sqlite_archive' cannot be imported" in said
    assert "a_driver_that_is_missing" in said
    assert "Traceback" not in said


@pytest.mark.waits
def test_a_static_check_checks_the_options_too(tmp_path: Path, site: Path) -> None:
    status, said = check(tmp_path, FILE.replace("table:", "tabel:"), "--static", site=site)
    assert (status, "did you mean 'table'?" in said) == (2, True), said
