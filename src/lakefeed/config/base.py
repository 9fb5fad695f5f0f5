"""What all models of the configuration share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Model(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class OneOf(Model):
    """A block that holds exactly one of several kinds, such as ``sink: {iceberg: {...}}``.

    The fields named in ``__kinds__`` are the kinds; other fields belong to the block itself.
    """

    __kinds__: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _bare_kind(cls, data: Any) -> Any:
        """Lets a kind without settings be written as a bare word: ``decode: raw``."""
        return {data: {}} if isinstance(data, str) and data in cls.__kinds__ else data

    @model_validator(mode="after")
    def _exactly_one(self) -> OneOf:
        given = self._given()
        if len(given) != 1:
            have = f"has {' and '.join(given)}" if given else "has none"
            raise ValueError(f"exactly one of {', '.join(self.__kinds__)} is wanted; this block {have}")
        return self

    def _given(self) -> list[str]:
        names = {field.alias or name: name for name, field in type(self).model_fields.items()}
        return [kind for kind in self.__kinds__ if getattr(self, names[kind]) is not None]

    @property
    def kind(self) -> str:
        """Which of the kinds this block holds, as it is written in the file."""
        return self._given()[0]
