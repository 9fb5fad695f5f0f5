"""Makes a feed's sinks out of the blocks of its pipeline file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lakefeed.config.blocks import SecondarySinkChoice, SinkChoice
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.sinks.definition import SinkContext, SinkDefinition
from lakefeed.sinks.fan_out import FanOutSink, SecondarySink
from lakefeed.sinks.protocol import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AnySink: TypeAlias = SinkDefinition[Any]


def sink_of(config: PipelineConfig, connections: Connections, *, folder: Path | None = None) -> AnySink:
    """Return the definition of the feed's own sink.

    Args:
        config: the pipeline; of one topic, where each has a table of its own.
        connections: store and catalogs.
        folder: where the pipeline file is: Python classes are looked for there too.
    """
    return _definition("sink", config.sink, config, connections, folder)


def sinks_of(config: PipelineConfig, connections: Connections, *, folder: Path | None = None) -> list[AnySink]:
    """Return the definitions of all sinks, the feed's own first; arguments as for ``sink_of``."""
    return [_definition(place, sink, config, connections, folder) for place, sink in config.sink_blocks]


def open_sink(
    config: PipelineConfig,
    connections: Connections,
    *,
    spark: SparkSession,
    claim: Claim,
    note: Callable[[str], None],
    folder: Path | None = None,
) -> Sink:
    """Open the feed's own sink, or that and the secondary ones as one.

    Args:
        config: the pipeline.
        connections: store and catalogs.
        spark: the session.
        claim: the feed's checkpoint.
        note: called when a secondary sink falls behind, and when it resumes.
        folder: where the pipeline file is.

    Raises:
        ConfigError: a sink cannot serve this pipeline.
    """
    main = sink_of(config, connections, folder=folder).open(spark, claim)
    if not config.sinks:
        return main
    begun = tuple(claim.noted.sinks)
    sides = [
        SecondarySink(
            name,
            _definition(f"sinks.{name}", sink, config, connections, folder).open(spark, claim),
            sink.can_lag,
            is_new=name not in begun,
        )
        for name, sink in config.sinks.items()
    ]
    if new := [side.name for side in sides if side.is_new]:
        claim.remember(sinks=(*begun, *new))
    return FanOutSink(config.name, main, sides, note=note)


def _definition(
    place: str, sink: SinkChoice, config: PipelineConfig, connections: Connections, folder: Path | None
) -> AnySink:
    settings = sink.chosen
    context = SinkContext(
        feed=config.name,
        place=f"{place}.{sink.kind}",
        connections=connections,
        output_mode=config.output_mode,
        evolves=config.schema_.on_change == "evolve",
        can_lag=isinstance(sink, SecondarySinkChoice) and sink.can_lag,
        source=config.source.kafka,
        folder=folder,
    )
    module, _, name = settings.definition.partition(":")
    try:
        found: type[AnySink] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the sink's code cannot be loaded: {error}",
            where=context.place,
            hint="reinstall the package that the sink comes from",
        ) from None
    return found(settings, context)
