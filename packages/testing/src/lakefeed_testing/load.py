"""Read the cases in a pipeline's block ``tests``, and in files with the content of such a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lakefeed.clients.environment import default_environment
from lakefeed.config.loading.document import Document, Remote, interpolate
from lakefeed.config.loading.load import read
from lakefeed.config.loading.nodes import dotted
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import raise_first_error
from lakefeed.errors import ConfigError
from lakefeed_testing.settings import Case, PipelineTests

NOT_ASKED = {
    "KAFKA_BOOTSTRAP_SERVERS": "localhost:9092",
    "SCHEMA_REGISTRY_URL": "http://localhost:8081",
    "LAKEFEED_CATALOG_URI": "jdbc:sqlite:/tmp/catalog.db",
    "LAKEFEED_WAREHOUSE": "s3://lake/warehouse",
}
"""Values for unset variables in blocks with addresses of servers, because cases use no servers."""
DECIDING = ("decode", "schema", "expect", "transform", "tests")
"""The blocks that decide the result of a record; variables in these blocks must be set."""


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """The cases of one file, and the pipeline that they test."""

    file: str
    config: PipelineConfig
    document: Document
    tests: PipelineTests

    def with_tests(self, tests: PipelineTests) -> CaseFile:
        """Return a copy with these tests; messages about them have no line numbers."""
        return replace(self, tests=tests)

    @property
    def cases(self) -> Mapping[str, Case]:
        return self.tests.cases

    def where(self, case: str, *below: str | int) -> str:
        """Return ``file:line`` of a case, or of an item in it."""
        place = self.document.locate(("tests", "cases", case, *below), key=not below)
        return f"{place.file}:{place.line}" if place.line else place.file


def load_cases(
    pipeline: Path,
    paths: Sequence[Path] = (),
    *,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[CaseFile]:
    """Read the cases of a pipeline file, and of the files and folders in ``paths``.

    Variables with addresses of servers need not be set. The default ``environment`` is this process's.

    Raises:
        ConfigError: lists all mistakes of a file, with lines and hints; or there is no case.
    """
    own = load_pipeline(pipeline, overrides=overrides, environment=environment)
    known = _environment(environment)
    found = [own, *(_read(pipeline, file, overrides, known) for file in _files(paths))]
    if not any(each.cases for each in found):
        raise ConfigError(
            "there is no case to run",
            where=str(pipeline),
            hint="write cases into the block tests, or name a file or folder with cases: --cases",
        )
    return [each for each in found if each.cases]


def load_pipeline(
    pipeline: Path, *, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> CaseFile:
    """Return a pipeline file with its own cases, if any; the rules are those of ``load_cases``."""
    return _read(pipeline, None, overrides, _environment(environment))


def _environment(given: Mapping[str, str] | None) -> dict[str, str]:
    return {**NOT_ASKED, **(default_environment() if given is None else given)}


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        files = (
            sorted(each for each in path.rglob("*") if each.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
        )
        if not files:
            hint = "name a folder with files that end in .yaml or .yml"
            raise ConfigError("the folder has no files with cases", where=str(path), hint=hint)
        found += files
    return list(dict.fromkeys(found))


def _read(pipeline: Path, cases: Path | None, overrides: Sequence[str], environment: Mapping[str, str]) -> CaseFile:
    files = [pipeline] if cases is None else [pipeline, cases]
    texts = [file.read_text("utf-8", errors="replace") for file in files if file.is_file()]
    block = None if cases is None else ("tests", cases)
    unset = frozenset(interpolate("\n".join(texts), environment=environment).undefined)
    reading = read(pipeline, overrides=overrides, environment=environment, remote=Remote(variables=unset), block=block)
    raise_first_error(reading.problems)
    mistakes = reading.mistakes
    assert mistakes is not None  # ``raise_first_error`` has raised the problem that would leave ``mistakes`` None.
    for place in sorted(mistakes.replaced, key=str):
        if place and place[0] in DECIDING and "registry" not in place:
            written = reading.document.written.get(place, "")
            at = reading.document.locate(place)
            raise ConfigError(
                f"'{dotted(place)}' is {written}, but the cases need its value",
                where=f"{at.file}:{at.line}",
                hint="set the variable: it is in a block that decides the result of records",
            )
    assert mistakes.config is not None  # Every unset variable has a value by now.
    tests = mistakes.config.block(PipelineTests) or PipelineTests()
    return CaseFile(file=str(cases or pipeline), config=mistakes.config, document=reading.document, tests=tests)
