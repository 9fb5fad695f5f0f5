"""Nodes → the values that the models take, with ``${NAME}`` replaced, and where each of them stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from lakefeed.config import shape
from lakefeed.config.interpolate import interpolate
from lakefeed.config.nodes import OVERRIDE, Location, refuse
from lakefeed.config.problem import Problem
from lakefeed.config.shape import Place, dotted

# What a document may unfold into through aliases.
MAX_NODES = 20_000


@dataclass
class Document:
    """The values of a file, and where each of them stands.

    Attributes:
        values: what the models validate.
        keys: place -> where its key (or list item) stands.
        contents: place -> where its value stands.
        written: place -> the scalar as written, before substitution.
        variables: place -> environment variables its value refers to.
        broken: places whose value could not be made out; what the models say about them is noise.
        secrets: texts that no message may repeat.
        problems: what was found wrong on the way.
    """

    values: Any = None
    keys: dict[Place, Location] = field(default_factory=dict)
    contents: dict[Place, Location] = field(default_factory=dict)
    written: dict[Place, str] = field(default_factory=dict)
    variables: dict[Place, tuple[str, ...]] = field(default_factory=dict)
    broken: set[Place] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def locate(self, place: Place, *, key: bool = False) -> Location:
        """Where ``place`` stands, or else the nearest block around it."""
        for length in range(len(place), -1, -1):
            found = (self.keys if key or length < len(place) else self.contents).get(place[:length])
            if found:
                return found
        return Location(file="pipeline", line=None, column=None)

    def add(
        self, what: str, *, place: Place, location: Location, hint: str | None = None, warning: bool = False
    ) -> None:
        """Notes a problem."""
        self.problems.append(
            Problem(
                what=what,
                file=location.file,
                line=location.line,
                column=location.column,
                key=dotted(place),
                hint=hint,
                severity="warning" if warning else "error",
            )
        )


def convert(
    node: Node | None, *, root: type, folder: Path, environment: Mapping[str, str], name: str
) -> Document:
    """The values of a node tree, with ``${NAME}`` replaced, as ``root`` wants them, and where each stands."""
    document = Document()
    document.keys[()] = document.contents[()] = Location(file=name, line=1, column=1)
    if node is not None:
        document.values = _Conversion(document, folder=folder, environment=environment).value(node, (), root)
    return document


class _Conversion:
    def __init__(self, document: Document, *, folder: Path, environment: Mapping[str, str]) -> None:
        self.document = document
        self.folder = folder
        self.environment = environment
        self.nodes = 0
        self.free_text = False
        self.open: list[Node] = []
        self.constructor = yaml.constructor.SafeConstructor()
        self.resolver: Any = yaml.resolver.Resolver()

    def value(self, node: Node, place: Place, annotation: Any) -> Any:
        self.nodes += 1
        location = Location.of(node.start_mark)
        if place:
            self.document.contents[place] = location
        if self.nodes > MAX_NODES or any(node is each for each in self.open):
            refuse("aliases (*name) that unfold without end", location, "write the values out")
        if isinstance(node, ScalarNode):
            return self.scalar(node, place, annotation)
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.rpartition(":")[2] not in ("map", "seq"):
            self.broken(f"the tag {node.tag} means nothing here", place, location, "remove it")
        self.open.append(node)
        self.free_text = False
        if isinstance(node, MappingNode):
            values: Any = self.block(node, place, annotation)
        else:
            values = self.items(node, place, annotation)
        self.open.pop()
        return values

    def items(self, node: Node, place: Place, annotation: Any) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            here = (*place, index)
            self.document.keys[here] = Location.of(item.start_mark)
            values.append(self.value(item, here, shape.step(annotation, index)))
        return values

    def block(self, node: MappingNode, place: Place, annotation: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            location = Location.of(key_node.start_mark)
            if not isinstance(key_node, ScalarNode):
                self.broken("a key must be a plain word", place, location)
                continue
            # The word as written: YAML would read the key 'on' as true.
            key = key_node.value
            here = (*place, key)
            if key in values:
                first = self.document.keys[here]
                at = f"line {first.line}" if first.line else first.file
                self.document.add(
                    f"'{key}' stands twice in this block",
                    place=here,
                    location=location,
                    hint=f"the first is at {at}; remove one of them",
                )
                continue
            self.document.keys[here] = location
            self.free_text = shape.free_form(annotation) is str
            values[key] = self.value(value_node, here, shape.step(annotation, key))
        return values

    def scalar(self, node: ScalarNode, place: Place, annotation: Any) -> Any:
        document, location = self.document, Location.of(node.start_mark)
        outcome = interpolate(node.value, environment=self.environment)
        document.written[place] = node.value
        document.variables[place] = outcome.variables
        secret = shape.is_secret(annotation)
        for name in outcome.undefined:
            hint = f"set it (export {name}=…), or give a default: ${{{name}:-value}}"
            self.broken(f"the environment variable {name} is not set", place, location, hint)
        for text in outcome.malformed:
            shown = "a ${…}" if secret else f"'{text}'"
            hint = "write ${NAME} or ${NAME:-default}; $$ stands for one dollar sign"
            self.broken(f"{shown} names no environment variable", place, location, hint)
        if place in document.broken:
            return node.value
        if secret and outcome.text:
            document.secrets.add(outcome.text)
            if not outcome.variables:
                self.literal_secret(place, location)
        if shape.is_path(annotation):
            return self.path(outcome.text, place, location)
        if outcome.variables and shape.accepts_text(annotation):
            # A password 0123 or a version 1.10 from the environment is text where text is wanted.
            return outcome.text or (None if node.style is None and shape.optional(annotation) else "")
        typed = self.typed(node, outcome.text)
        # Where keys are free (table properties), 134217728 and true are meant as they are written.
        return outcome.text if self.free_text and isinstance(typed, int | float) else typed

    def literal_secret(self, place: Place, location: Location) -> None:
        name = str(place[-1]).upper()
        on_command_line = location.file.startswith(OVERRIDE)
        self.document.add(
            f"'{place[-1]}' is written out " + ("on the command line" if on_command_line else "in the file"),
            place=place,
            location=location,
            hint=f"take it from the environment: {place[-1]}: ${{{name}}}",
            warning=True,
        )

    def path(self, text: str, place: Place, location: Location) -> Any:
        if not text:
            return None
        path = Path(text).expanduser()
        path = path if path.is_absolute() else self.folder / path
        if not path.is_file():
            kind = "is no file" if path.exists() else "does not exist"
            hint = "a relative path starts at the pipeline file's folder"
            self.broken(f"'{place[-1]}': {path} {kind}", place, location, hint)
        return path

    def typed(self, node: ScalarNode, text: str) -> Any:
        if node.style is not None and node.tag == "tag:yaml.org,2002:str":
            return text
        tag = node.tag
        if node.style is None and text != node.value:
            tag = self.resolver.resolve(ScalarNode, text, (True, False))
        try:
            return self.constructor.construct_object(ScalarNode(tag, text, node.start_mark, node.end_mark))
        except (yaml.YAMLError, ValueError):
            return text

    def broken(self, what: str, place: Place, location: Location, hint: str | None = None) -> None:
        self.document.broken.add(place)
        self.document.add(what, place=place, location=location, hint=hint)
