"""``pipeline.yaml`` as models: what may stand in it, its defaults, and what each setting is for.

The reference in the documents and the JSON Schema for editors are generated from here.
"""

from __future__ import annotations

from pydantic import ValidationInfo, model_validator

from lakefeed.config.base import complain
from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.validate import misfits

RULES_OF_THE_FILE = "misfits"
"""Key of the validation context: a list there takes what the rules between blocks find, and nothing is raised."""


class PipelineConfig(PipelineBlocks):
    """A pipeline: topics in, one table out."""

    @model_validator(mode="after")
    def _blocks_fit(self, info: ValidationInfo) -> PipelineConfig:
        collected = (info.context or {}).get(RULES_OF_THE_FILE)
        if collected is None:
            complain(misfits(self))
        else:
            collected.extend(misfits(self))
        return self
