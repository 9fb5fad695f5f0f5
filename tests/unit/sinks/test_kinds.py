"""Outside of the sinks and their settings, no code depends on the kind of a sink."""

import ast
import importlib
import pkgutil
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import lakefeed.sinks
from lakefeed.config.blocks import SinkChoice
from lakefeed.config.loading import nodes
from lakefeed.config.sinks import Capabilities, SinkConfig
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.definition import SinkDefinition

PACKAGE = Path(lakefeed.sinks.__file__).parents[1]
ROOMS = ("sinks", "config")
"""The folders whose code may name kinds of sinks: the sinks, and the settings."""


def subclasses(of: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(of)
    for each in below:
        yield each
        yield from subclasses(each)


def concrete_names() -> set[str]:
    for module in pkgutil.walk_packages(lakefeed.sinks.__path__, "lakefeed.sinks."):
        importlib.import_module(module.name)
    for model in settings().values():
        importlib.import_module(model.definition.partition(":")[0])
    bases = (BaseSink, SinkDefinition, SinkConfig)
    # Other tests in this process may define sinks.
    kinds = {
        each for base in bases for each in subclasses(base) if each.__module__.startswith(("lakefeed.", "lakefeed_"))
    }
    # These sinks, of a single read and of a start's plan, cannot be in a pipeline file.
    others = ("lakefeed_inspect.read", "lakefeed.operations.plan")
    return {each.__name__ for each in kinds if each.__module__ not in others} - {"SinkConfig", "SinkChoice"}


def asked(tree: ast.AST, names: set[str], kinds: Collection[str] = SinkChoice.kinds()) -> Iterator[str]:
    """Yield the lines in which a module names a kind of sink, or compares with one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).removesuffix(".chosen").rpartition(".")[2]
            if node.attr in kinds and owner.endswith(("sink", "block")):
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Name) and node.id in names:
            yield f"{node.lineno}: {node.id}"
        elif isinstance(node, ast.alias) and node.name in names:
            yield f"{node.lineno}: import of {node.name}"
        elif isinstance(node, ast.Compare):
            sides = [ast.unparse(each) for each in (node.left, *node.comparators)]
            if any(each.endswith(("sink.kind", "block.kind")) for each in sides):
                yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    "code",
    [
        "if config.sink.iceberg is not None: pass",
        "table = each.sink.chosen.kafka",
        "if isinstance(sink, IcebergTable): pass",
        "from lakefeed_kafka.settings import KafkaSinkConfig",
        "if config.sink.kind == 'kafka': pass",
        "if config.sink.kind in OTHERS: pass",
    ],
)
def test_code_that_depends_on_the_kind_of_a_sink_is_found(code: str) -> None:
    assert list(asked(ast.parse(code), concrete_names()))


def test_no_code_outside_the_sinks_depends_on_the_kind_of_a_sink() -> None:
    names = concrete_names()
    assert {"IcebergTable", "KafkaSink", "FanOutSink", "IcebergSinkConfig", "KafkaDefinition"} <= names
    found = [
        f"{path.relative_to(PACKAGE)}:{each}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in ROOMS
        for each in asked(ast.parse(path.read_text("utf-8")), names)
    ]
    assert found == []


def test_the_core_names_no_sink_of_another_package() -> None:
    kinds = set(SinkChoice.kinds()) - set(SinkChoice.__kinds__)
    found = [
        f"{path.relative_to(PACKAGE)}:{each}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for each in asked(ast.parse(path.read_text("utf-8")), set(), kinds)
        if "kind" not in each
    ]
    assert found == []


def settings() -> dict[str, type[SinkConfig]]:
    fields = nodes.fields(SinkChoice)
    models = {kind: nodes.model_of(fields[kind].annotation) for kind in SinkChoice.kinds()}
    return {kind: model for kind, model in models.items() if model is not None and issubclass(model, SinkConfig)}


@pytest.mark.parametrize("kind", SinkChoice.kinds())
def test_each_sink_has_a_definition_that_can_be_imported(kind: str) -> None:
    module, _, name = settings()[kind].definition.partition(":")
    assert issubclass(getattr(importlib.import_module(module), name), SinkDefinition)


@pytest.mark.parametrize("kind", SinkChoice.kinds())
def test_a_refusal_names_the_sink_and_gives_the_next_step(kind: str) -> None:
    declared: Capabilities = settings()[kind].capabilities
    for operation in ("rewind", "backfill", "verify", "lag", "stand_beside", "real_time", "batch"):
        refusal = declared.refusal(operation, sink=kind)
        assert refusal is None or (refusal.hint and "{" not in refusal.what), operation
