"""Blocks that installed packages add to the pipeline file: entry points of ``lakefeed.settings``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint
from itertools import groupby
from typing import Any

from pydantic import ConfigDict, model_validator

from lakefeed import plugins
from lakefeed.config.base import ConfigProblem, ConfigProblems
from lakefeed.config.blocks import Block, PipelineBlocks

_OWN_KEYS = frozenset(field.alias or name for name, field in PipelineBlocks.model_fields.items())


@cache
def added_models() -> dict[str, type[Block]]:
    """Return the model of each added block by its key.

    A package that cannot be imported has a model that refuses the block and names the package, so that files without
    the block are read as ever. A key of lakefeed itself cannot be added.
    """
    entries = [entry for entry in plugins.installed(plugins.SETTINGS_GROUP) if entry.name not in _OWN_KEYS]
    return {key: _model_of(list(found)) for key, found in groupby(entries, key=lambda entry: entry.name)}


def keys_for_runs() -> tuple[str, ...]:
    """Return the keys of blocks that only a run needs, whether their packages are installed or not."""
    models = added_models()
    ours = [key for keys in plugins.KEYS_OF_EXTRAS.values() for key in keys if key not in models]
    return (*(key for key, model in models.items() if model.only_for_runs), *ours)


def _model_of(entries: list[EntryPoint]) -> type[Block]:
    entry, *others = entries
    if others:
        what = f"several packages add the block '{entry.name}': {', '.join(each.value for each in entries)}"
        return _refusing(ConfigProblem(what, hint="uninstall all but one of them"))
    try:
        model = entry.load()
    except Exception as error:
        what = f"the package of the block '{entry.name}' ({entry.value}) cannot be imported: {error}"
        return _refusing(ConfigProblem(what, hint="reinstall the package, or one of its dependencies"))
    if not (isinstance(model, type) and issubclass(model, Block)):
        what = f"the entry point of the block '{entry.name}' is not a subclass of lakefeed.config.blocks.Block"
        return _refusing(ConfigProblem(what, hint=f"correct the package of {entry.value}"))
    return model


def _refusing(problem: ConfigProblem) -> type[Block]:
    class Unusable(Block):
        """A block whose package cannot be used."""

        model_config = ConfigDict(extra="allow")

        @model_validator(mode="before")
        @classmethod
        def _refuse(cls, block: Any) -> Any:
            raise ConfigProblems(problem)

    return Unusable
