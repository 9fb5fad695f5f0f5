"""Read a data contract of the Open Data Contract Standard (ODCS, version 3) as rules for the block ``expect``.

A rule holds for each single record. What a contract says about many records, such as unique values or a number of rows,
is named instead, because only a table can be compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError

from lakefeed.errors import ConfigError

PAGE = "dead-letters"

_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_SIZES = {"minLength": ("char_length", ">="), "maxLength": ("char_length", "<=")}
_SIZES |= {"minItems": ("size", ">="), "maxItems": ("size", "<=")}
_ESCAPED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class _Quality(BaseModel):
    type: str = "library"
    metric: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    most: Any = Field(None, alias="mustBe")
    name: str | None = None


class _Property(BaseModel):
    name: str
    physical_name: str | None = Field(None, alias="physicalName")
    logical_type: str | None = Field(None, alias="logicalType")
    options: dict[str, Any] = Field(default_factory=dict, alias="logicalTypeOptions")
    required: bool = False
    unique: bool = False
    key: bool = Field(False, alias="primaryKey")
    properties: list[_Property] = Field(default_factory=list)
    quality: list[_Quality] = Field(default_factory=list)


class _Contract(BaseModel):
    kind: Literal["DataContract"]
    standard: str = Field(alias="apiVersion", pattern=r"^v3\.")
    version: str
    objects: list[_Property] = Field(alias="schema", min_length=1)


@dataclass(frozen=True)
class Rules:
    """The rules of a contract's object, by name, and what has none; ``source`` names the contract."""

    source: str
    expect: dict[str, str]
    left_out: tuple[str, ...]


def read(path: Path, topic: str) -> Rules:
    """Return the rules for the records of a topic: of the object with the topic's name, or of the only one.

    Raises:
        ConfigError: the file is no contract, or it has several objects and none has this name.
    """
    try:
        contract = _Contract.model_validate(yaml.safe_load(path.read_bytes()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        what, hint = f"the contract cannot be read: {type(error).__name__}", "give a YAML file that this user can read"
        raise ConfigError(what, where=str(path), hint=hint) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        what = f"not a data contract of ODCS 3: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ConfigError(what, where=str(path), hint="check it: datacontract lint FILE") from None
    named = [each for each in contract.objects if topic in (each.physical_name, each.name)]
    if not named and len(contract.objects) > 1:
        what = f"the contract has no schema named {topic}: {', '.join(each.name for each in contract.objects)}"
        raise ConfigError(what, where=str(path), hint="name the topic as physicalName of its schema")
    [chosen, *_] = named or contract.objects
    collected = _Rules({}, [])
    for check in chosen.quality:
        collected.left_out.append(f"{chosen.name}: {_named(check)}")
    collected.add(chosen.properties, ())
    return Rules(f"{path.name}, version {contract.version}", collected.expect, tuple(collected.left_out))


@dataclass
class _Rules:
    expect: dict[str, str]
    left_out: list[str]

    def add(self, properties: Iterable[_Property], around: tuple[str, ...]) -> None:
        """Add the rules of properties, which are in the structs ``around``."""
        for each in properties:
            names = (*around, each.physical_name or each.name)
            column = _column(names)
            outer = "".join(f"{_column(names[: at + 1])} IS NULL OR " for at in range(len(around)))
            for kind, condition in self._of(each, column, ".".join(names)):
                self._put(names, kind, f"{outer}{condition}")
            self.add(each.properties, names)

    def _put(self, names: tuple[str, ...], kind: str, rule: str) -> None:
        base = re.sub(r"\W", "_", "_".join([*names, kind]), flags=re.ASCII)
        name, number = base, 2
        while name in self.expect:
            name, number = f"{base}_{number}", number + 1
        self.expect[name] = rule

    def _of(self, each: _Property, column: str, shown: str) -> Iterator[tuple[str, str]]:
        if each.required:
            yield "required", f"{column} IS NOT NULL"
        for option, value in each.options.items():
            condition = _condition(column, option, value, each.logical_type)
            if condition is None:
                self.left_out.append(f"{shown}: {option}")
            else:
                yield option, f"{column} IS NULL OR {condition}"
        if each.unique or each.key:
            self.left_out.append(f"{shown}: unique")
        for check in each.quality:
            condition = _checked(column, check)
            if condition is None:
                self.left_out.append(f"{shown}: {_named(check)}")
            else:
                yield check.metric or "", condition


def _named(check: _Quality) -> str:
    return check.name or check.metric or check.type


def _column(names: Iterable[str]) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def _condition(column: str, option: str, value: Any, kind: str | None) -> str | None:
    """Return the condition of one of ``logicalTypeOptions``; None if it is not about a value."""
    if option in _BOUNDS:
        number = _literal(value) if isinstance(value, int | float) else None
        literal = _moment(value, kind) if kind in ("date", "timestamp") else number
        return None if literal is None else f"{column} {_BOUNDS[option]} {literal}"
    if option in _SIZES and isinstance(value, int):
        function, sign = _SIZES[option]
        return f"{function}({column}) {sign} {value}"
    if option == "pattern":
        return f"{column} RLIKE {_literal(str(value))}"
    if option == "multipleOf" and isinstance(value, int):
        return f"{column} % {value} = 0"
    if option == "uniqueItems" and value is True:
        return f"size(array_distinct({column})) = size({column})"
    return None


def _checked(column: str, check: _Quality) -> str | None:
    """Return the condition of a library's metric that no record may have; None for any other check."""
    if check.most != 0 or isinstance(check.most, bool):
        return None
    if check.metric == "nullValues":
        return f"{column} IS NOT NULL"
    if check.metric == "missingValues" and (values := check.arguments.get("missingValues")):
        literals = [literal for each in values if (literal := _literal(each)) is not None]
        given = [f"{column} NOT IN ({', '.join(literals)})"] if literals else []
        if None in values:
            return " AND ".join([f"{column} IS NOT NULL", *given])
        return f"{column} IS NULL OR {given[0]}"
    if check.metric == "invalidValues":
        values = [_literal(each) for each in check.arguments.get("validValues", [])]
        parts = [f"{column} IN ({', '.join(each for each in values if each)})"] if values else []
        if "pattern" in check.arguments:
            parts.append(f"{column} RLIKE {_literal(str(check.arguments['pattern']))}")
        return f"{column} IS NULL OR {' AND '.join(parts)}" if parts and None not in values else None
    return None


def _literal(value: Any) -> str | None:
    """Return a value as a literal of Spark's SQL; None if there is none."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return format(Decimal(str(value)), "f") if Decimal(str(value)).is_finite() else None
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return "'" + "".join(_ESCAPED.get(char, char) for char in value) + "'" if isinstance(value, str) else None


def _moment(value: Any, kind: str) -> str | None:
    """Return a bound of dates or times as a literal; None if it is not in ISO 8601."""
    try:
        moment = value if isinstance(value, date) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return _literal(moment.date() if kind == "date" and isinstance(moment, datetime) else moment)
