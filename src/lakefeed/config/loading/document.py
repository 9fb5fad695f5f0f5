"""Nodes → the values that the models take, with ``${NAME}`` replaced, and where each of them stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from lakefeed.config.loading import shape
from lakefeed.config.loading.interpolate import interpolate
from lakefeed.config.loading.nodes import OVERRIDE, Location, refuse
from lakefeed.config.loading.shape import Place, dotted
from lakefeed.config.problem import Problem
from lakefeed.config.secrets import SECRET_KEY, SecretText, at_launch, keeps_secrets
from lakefeed.config.urls import credentials_in
from lakefeed.messages.redaction import SHORTEST, SHORTEST_OF_FREE, remember

# Those that plain values get, and the two kinds of blocks.
_KINDS = ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value", "merge")
TAGS = {f"tag:yaml.org,2002:{kind}" for kind in _KINDS}

# What a document may unfold into through aliases.
MAX_NODES = 20_000

VARIABLES = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


def problem_at(
    location: Location, place: Place, what: str, *, hint: str | None = None, warning: bool = False
) -> Problem:
    """A problem of the setting ``place``, which stands at ``location``."""
    return Problem(
        what=what,
        file=location.file,
        line=location.line,
        column=location.column,
        key=dotted(place),
        hint=hint,
        severity="warning" if warning else "error",
    )


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
        secret_places: places whose value no message may repeat.
        secrets: the texts that stand there.
        problems: what was found wrong on the way.
    """

    values: Any = None
    keys: dict[Place, Location] = field(default_factory=dict)
    contents: dict[Place, Location] = field(default_factory=dict)
    written: dict[Place, str] = field(default_factory=dict)
    variables: dict[Place, tuple[str, ...]] = field(default_factory=dict)
    broken: set[Place] = field(default_factory=set)
    secret_places: set[Place] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def locate(self, place: Place, *, key: bool = False) -> Location:
        """Where ``place`` stands, or else the nearest block around it."""
        for length in range(len(place), -1, -1):
            around = place[:length]
            # What was written in short, such as ``registry: http://…``, stands where its value stands.
            at_key = (key and length == len(place)) or (length < len(place) and around not in self.written)
            if found := (self.keys if at_key else self.contents).get(around):
                return found
        return Location(file="pipeline", line=None, column=None)

    def located(self, problem: Problem) -> Problem:
        """A problem with the line of its setting; a setting that comes from the environment has none."""
        # A key may have dots itself, as a topic's name.
        known = {dotted(place): place for place in self.contents}
        key = problem.key
        while key and key not in known:
            key = key.rpartition(".")[0]
        if not key:
            return problem
        location = self.locate(known[key])
        return replace(problem, file=location.file, line=location.line, column=location.column)

    def rename(self, old: Place, new: Place) -> None:
        """Lets what stands at ``old`` be known at ``new`` too: a misspelt key's value under the right key."""
        for known in (self.keys, self.contents, self.written, self.variables):
            moved: dict[Place, Any] = {p: each for p, each in known.items() if p[: len(old)] == old}
            known.update({(*new, *p[len(old) :]): each for p, each in moved.items()})
        for places in (self.broken, self.secret_places):
            places |= {(*new, *p[len(old) :]) for p in places if p[: len(old)] == old}

    def add(
        self, what: str, *, place: Place, location: Location, hint: str | None = None, warning: bool = False
    ) -> None:
        """Notes a problem."""
        self.problems.append(problem_at(location, place, what, hint=hint, warning=warning))


def convert(
    node: Node | None, *, root: type, folder: Path, environment: Mapping[str, str] | None, name: str
) -> Document:
    """The values of a node tree, with ``${NAME}`` replaced, as ``root`` expects them, and where each stands.

    Without an environment no variable has a value: what is left open is a warning, and no mistake.
    """
    document = Document()
    document.keys[()] = document.contents[()] = Location(file=name, line=1, column=1)
    if node is not None:
        document.values = _Conversion(document, folder=folder, environment=environment).value(node, (), root)
    return document


class _Conversion:
    def __init__(self, document: Document, *, folder: Path, environment: Mapping[str, str] | None) -> None:
        self.document = document
        self.folder = folder
        self.environment = environment
        self.nodes = 0
        # The type of the values of the block at hand, if its keys are free.
        self.free: Any = None
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
        if node.tag not in TAGS:
            self.broken(f"the tag {node.tag} means nothing here", place, location, "remove it")
        if isinstance(node, ScalarNode):
            return self.scalar(node, place, annotation)
        self.open.append(node)
        self.free = None
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
            key = _whole(key_node.value)
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
            self.free = shape.free_form(annotation)
            values[key] = self.value(value_node, here, shape.step(annotation, key))
        return values

    def scalar(self, node: ScalarNode, place: Place, annotation: Any) -> Any:
        document, location = self.document, Location.of(node.start_mark)
        written = _whole(node.value)
        outcome = interpolate(written, environment=self.environment or {})
        document.written[place] = written
        document.variables[place] = outcome.variables
        free, self.free = self.free, None
        in_free_block = free is not None and bool(SECRET_KEY.search(str(place[-1])))
        from_outside = free is not None and bool(outcome.variables) and not at_launch(str(place[-1]))
        secret = shape.is_secret(annotation) or in_free_block or from_outside
        for name in outcome.undefined:
            if self.environment is None:
                what = f"the environment variable {name} was not looked at"
                self.broken(what, place, location, "without --static it is", warning=True)
                continue
            hint = f"set it (export {name}=…), or give a default: ${{{name}:-value}}"
            self.broken(f"the environment variable {name} is not set", place, location, hint)
        for name in outcome.empty if not outcome.text.strip() else ():
            hint = f"give it a value; or write ${{{name}:-}} where the setting may be left out"
            self.broken(f"the environment variable {name} is empty", place, location, hint)
        for text in outcome.malformed:
            shown = "a ${…}" if secret else f"'{text}'"
            hint = "write ${NAME} or ${NAME:-default}; $$ stands for one dollar sign"
            self.broken(f"{shown} names no environment variable", place, location, hint)
        if from_outside and not keeps_secrets(free):
            what = f"'{place[-1]}' is public, and a value from ${{…}} is taken for a secret"
            hint = "write the value itself: it is kept where each reader of the table, index or topic sees it"
            self.broken(what, place, location, hint)
        if secret and outcome.text and not outcome.undefined:
            document.secret_places.add(place)
            document.secrets.add(outcome.text)
            named = in_free_block or shape.is_secret(annotation)
            # A message may quote the variable's value without the text around it.
            values = [(self.environment or {}).get(name, "") for name in outcome.variables]
            remember([outcome.text, *values], shortest=SHORTEST if named else SHORTEST_OF_FREE)
        if place in document.broken:
            return node.value
        if secret and outcome.text and not outcome.variables:
            self.literal_secret(place, location, warning=not in_free_block)
        if free is not None and not secret and (login := credentials_in(outcome.text)) is not None:
            what = f"'{place[-1]}' has credentials in a URL: {login}"
            self.broken(
                what, place, location, "take them out; or give the whole value as ${NAME}, which is kept secret"
            )
            return outcome.text
        if shape.is_path(annotation):
            return self.path(outcome.text, place, location)
        if outcome.variables and shape.accepts_text(annotation):
            # A password 0123 or a version 1.10 from the environment is text where text is expected.
            if from_outside:
                return SecretText(outcome.text)
            return outcome.text or (None if node.style is None and shape.optional(annotation) else "")
        typed = self.typed(node, outcome.text)
        # Where keys are free (table properties), 134217728 and true are meant as they are written.
        return outcome.text if shape.members(free) == (str,) and isinstance(typed, int | float) else typed

    def literal_secret(self, place: Place, location: Location, *, warning: bool) -> None:
        key = str(place[-1])
        name = VARIABLES.get(key) or re.sub(r"\W+", "_", key if "." in key else dotted(place[-2:])).upper()
        on_command_line = location.file.startswith(OVERRIDE)
        self.document.add(
            f"'{key}' holds a secret and is written out "
            + ("on the command line" if on_command_line else "in the file"),
            place=place,
            location=location,
            hint=f"take it from the environment: {key}: ${{{name}}}",
            warning=warning,
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

    def broken(
        self, what: str, place: Place, location: Location, hint: str | None = None, *, warning: bool = False
    ) -> None:
        self.document.broken.add(place)
        self.document.add(what, place=place, location=location, hint=hint, warning=warning)


def _whole(text: str) -> str:
    """Puts characters together that JSON, which is YAML too, writes as two escapes (surrogates)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
