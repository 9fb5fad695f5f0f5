"""Converts YAML nodes into values for the models, with ``${NAME}`` replaced, and records the values' locations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from lakefeed.config.connections import AWS_KEYS, credentials_in
from lakefeed.config.loading import nodes
from lakefeed.config.loading.nodes import OVERRIDE, Location, Place, dotted, refuse
from lakefeed.config.problem import Problem
from lakefeed.config.secrets import SECRET_KEY, SecretText, at_launch, keeps_secrets, place_of_secrets
from lakefeed.messages.redaction import SHORTEST, SHORTEST_OF_FREE, remember

# PyYAML's tags for plain values, blocks and lists.
_KINDS = ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value", "merge")
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in _KINDS}

# Values of this form stay text: PyYAML (YAML 1.1) reads 1:30 as 90 and 010 as 8; in YAML 1.2 they are a text and 10.
_YAML_1_1 = re.compile(r"[-+]?(?:[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|0[0-7]+)")
_MOST_BYTES = 64 << 20
"""The largest size of a file that a setting names, because schemas and certificates are small."""
# The limit for the size of a document after its aliases are expanded.
_MAX_NODES = 20_000

_REFERENCE = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}|(?P<malformed>\$\{[^}]*\}?)")


@dataclass(frozen=True, kw_only=True)
class Remote:
    """The machine that the pipeline will run on, if it is not this machine.

    Attributes:
        variables: the environment variables that are set there; their values are unknown here.
        folders: folders of that machine; files in them are not checked.
    """

    variables: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()


@dataclass
class Interpolation:
    """A value with its references replaced.

    Attributes:
        variables: the names in the references.
        undefined: the variables without a default that are not set; ``empty`` lists those without a default that are
            blank.
        malformed: references in another form than ``${NAME}`` or ``${NAME:-default}``.
    """

    text: str = ""
    variables: list[str] = field(default_factory=list)
    undefined: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)


def interpolate(text: str, *, environment: Mapping[str, str]) -> Interpolation:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in a value; ``$$`` stands for one dollar sign.

    As in a shell, the default applies if the variable is unset or empty. References that cannot be replaced stay, and
    the result lists them. YAML is already parsed at this point, so a variable cannot add keys.
    """
    outcome = Interpolation()

    def replacement(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$$":
            return "$"
        if match["malformed"] or (default and "${" in default):
            outcome.malformed.append(match[0])
            return match[0]
        outcome.variables.append(name)
        value = environment.get(name)
        if default is not None:
            return value or default[2:]
        if value is None and name not in outcome.undefined:
            outcome.undefined.append(name)
        elif value is not None and not value.strip() and name not in outcome.empty:
            outcome.empty.append(name)
        return match[0] if value is None else value

    outcome.text = _REFERENCE.sub(replacement, text)
    return outcome


@dataclass
class Document:
    """The values of a file, and their locations. A place is a setting's path, as a tuple of keys and indexes.

    Attributes:
        keys: place -> location of its key or list item.
        contents: place -> location of its value.
        written: place -> its scalar before ``${NAME}`` is replaced.
        broken: places whose value is unknown; messages of the models about them are dropped.
        secret_places: places of values that no message may repeat; ``secrets`` has these values.
    """

    values: Any = None
    keys: dict[Place, Location] = field(default_factory=dict)
    contents: dict[Place, Location] = field(default_factory=dict)
    written: dict[Place, str] = field(default_factory=dict)
    broken: set[Place] = field(default_factory=set)
    secret_places: set[Place] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def locate(self, place: Place, *, key: bool = False) -> Location:
        """Return the location of ``place``, or else of the nearest block around ``place``."""
        for length in range(len(place), -1, -1):
            around = place[:length]
            # A short form such as ``registry: http://…`` has no key for the inner setting: point to the value.
            at_key = (key and length == len(place)) or (length < len(place) and around not in self.written)
            if found := (self.keys if at_key else self.contents).get(around):
                return found
        return Location(file="pipeline", line=None, column=None)

    def problem(self, place: Place, what: str, hint: str | None = None, *, key: bool = False) -> Problem:
        """Return a problem of the setting ``place``, located at the setting's value, or with ``key`` at its key."""
        return _at(self.locate(place, key=key), Problem(what=what, key=dotted(place), hint=hint))

    def located(self, problem: Problem) -> Problem:
        """Add the file and the setting's line to a problem without a file; a setting outside the file has no line."""
        # A key may contain dots, for example a topic's name.
        known = {dotted(place): place for place in self.contents}
        key = problem.key
        while key and key not in known:
            key = key.rpartition(".")[0]
        return _at(self.locate(known[key]), problem) if key and problem.file is None else problem

    def rename(self, old: Place, new: Place) -> None:
        """Add the locations of a misspelt key's values under the correct key."""

        def renamed(place: Place) -> Place:
            return (*new, *place[len(old) :])

        for known in (self.keys, self.contents, self.written):
            below: dict[Place, Any] = {place: value for place, value in known.items() if place[: len(old)] == old}
            known.update({renamed(place): value for place, value in below.items()})
        for places in (self.broken, self.secret_places):
            places |= {renamed(place) for place in places if place[: len(old)] == old}


def _at(location: Location, problem: Problem) -> Problem:
    return replace(problem, file=location.file, line=location.line, column=location.column)


def convert(
    node: Node,
    *,
    root: type,
    folder: Path,
    environment: Mapping[str, str] | None,
    name: str,
    remote: Remote | None = None,
) -> Document:
    """Convert a tree of nodes into values for the model ``root``, with ``${NAME}`` replaced.

    With ``environment=None`` no variable has a value, and each reference causes a warning instead of an error. A value
    that only the ``remote`` machine knows is marked as ``broken`` without a message.
    """
    document = Document()
    document.keys[()] = document.contents[()] = Location(file=name, line=1, column=1)
    document.values = _Conversion(document, folder, environment, remote or Remote()).value(node, (), root)
    return document


class _Conversion:
    def __init__(self, document: Document, folder: Path, environment: Mapping[str, str] | None, remote: Remote) -> None:
        self.document = document
        self.folder = folder
        self.environment = environment
        self.remote = remote
        self.nodes = 0
        self.open: list[Node] = []
        self.constructor = yaml.constructor.SafeConstructor()
        self.resolver: Any = yaml.resolver.Resolver()

    def value(self, node: Node, place: Place, annotation: Any, *, free: Any = None) -> Any:
        """Convert one node; in a block with free keys, ``free`` is the type of the block's values."""
        self.nodes += 1
        location = Location.of(node.start_mark)
        if place:
            self.document.contents[place] = location
        if self.nodes > _MAX_NODES:
            refuse(f"more than {_MAX_NODES:,} settings, counting what aliases (*name) repeat", location)
        if any(node is outer for outer in self.open):
            refuse("an alias (*name) that contains itself", location, "write the values out")
        if node.tag not in _TAGS:
            self.broken(f"the tag {node.tag} has no meaning here", place, location, "remove it")
        if isinstance(node, ScalarNode):
            return self.scalar(node, place, annotation, free)
        self.open.append(node)
        convert_entries = self.block if isinstance(node, MappingNode) else self.items
        values = convert_entries(node, place, annotation)
        self.open.pop()
        return values

    def items(self, node: Node, place: Place, annotation: Any) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            here = (*place, index)
            self.document.keys[here] = Location.of(item.start_mark)
            values.append(self.value(item, here, nodes.step(annotation, index)))
        return values

    def block(self, node: Node, place: Place, annotation: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            location = Location.of(key_node.start_mark)
            if not isinstance(key_node, ScalarNode):
                self.broken("a key must be a plain word", place, location, "write it as name: value")
                continue
            # Use the text of the key, because YAML would read the key 'on' as true.
            key = _join_surrogates(key_node.value)
            here = (*place, key)
            if key in values:
                first = self.document.keys[here]
                hint = f"the first is at {f'line {first.line}' if first.line else first.file}; remove one of them"
                self.add(f"'{key}' occurs twice in this block", here, location, hint)
                continue
            self.document.keys[here] = location
            free = nodes.free_form(annotation)
            values[key] = self.value(value_node, here, nodes.step(annotation, key), free=free)
        return values

    def scalar(self, node: ScalarNode, place: Place, annotation: Any, free: Any) -> Any:
        document, location = self.document, Location.of(node.start_mark)
        written = document.written[place] = _join_surrogates(node.value)
        outcome = interpolate(written, environment=self.environment or {})
        key = str(place[-1]) if place else ""
        is_secret_key = free is not None and bool(SECRET_KEY.search(key))
        from_outside = free is not None and bool(outcome.variables) and not at_launch(key)
        is_named = is_secret_key or nodes.is_secret(annotation)
        is_secret = is_named or from_outside
        self.report_references(outcome, place, location, is_secret=is_secret)
        if from_outside and not keeps_secrets(free):
            what = f"'{key}' takes no ${{…}}: the sink stores its value where all readers of the data can see it"
            hint = "if the value is not a secret, write it here without ${…}"
            self.broken(what, place, location, hint)
        if is_secret and outcome.text and not outcome.undefined:
            document.secret_places.add(place)
            document.secrets.add(outcome.text)
            # Hide each variable's own value, too: a message may quote it without the text around it.
            values = [(self.environment or {}).get(name, "") for name in outcome.variables]
            remember([outcome.text, *values], shortest=SHORTEST if is_named else SHORTEST_OF_FREE)
        if place in document.broken:
            return node.value
        if is_secret and outcome.text and not outcome.variables:
            named = tuple(part for part in place if isinstance(part, str))
            variable = AWS_KEYS.get(key) or re.sub(r"\W+", "_", key if "." in key else dotted(named[-2:])).upper()
            medium = "on the command line" if location.file.startswith(OVERRIDE) else "in the file"
            what = f"'{key}' holds a secret and is written out {medium}"
            hint = place_of_secrets(free, key) or f"take it from the environment: {key}: ${{{variable}}}"
            self.add(what, place, location, hint, not is_secret_key)
        if free is not None and not is_secret and (login := credentials_in(outcome.text)) is not None:
            what = f"'{key}' has credentials in a URL: {login}"
            hint = "remove the credentials, or write the whole value as ${NAME}, which lakefeed keeps secret"
            self.broken(what, place, location, hint)
            return outcome.text
        if Path in nodes.members(annotation):
            return self.path(outcome.text, place, location)
        if outcome.variables and nodes.accepts_text(annotation):
            # A variable's value such as 0123 or 1.10 stays text if the setting accepts text.
            if from_outside:
                return SecretText(outcome.text)
            return outcome.text or (None if node.style is None and type(None) in get_args(annotation) else "")
        typed = self.typed(node, outcome.text)
        # If all values of a block are texts, as table properties are, 134217728 and true stay texts too.
        return outcome.text if nodes.members(free) == (str,) and isinstance(typed, int | float) else typed

    def report_references(self, outcome: Interpolation, place: Place, location: Location, *, is_secret: bool) -> None:
        for name in outcome.undefined:
            if name in self.remote.variables:
                self.document.broken.add(place)
            elif self.environment is None:
                what = f"the environment variable {name} was not looked up"
                self.broken(what, place, location, "lakefeed check without --static looks it up", warning=True)
            else:
                hint = f"set the variable (export {name}=…), or give a default: ${{{name}:-value}}"
                self.broken(f"the environment variable {name} is not set", place, location, hint)
        for name in outcome.empty if not outcome.text.strip() else ():
            hint = f"give the variable a value; if the setting is optional, write ${{{name}:-}}"
            self.broken(f"the environment variable {name} is empty", place, location, hint)
        for text in outcome.malformed:
            shown = "a ${…}" if is_secret else f"'{text}'"
            hint = "write ${NAME} or ${NAME:-default}; $$ stands for one dollar sign"
            self.broken(f"{shown} names no environment variable", place, location, hint)

    def path(self, text: str, place: Place, location: Location) -> Path | None:
        if not text:
            return None
        path = self.folder / Path(text).expanduser()
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            return path
        if not any(path.is_relative_to(folder) for folder in self.remote.folders):
            kind = f"is larger than {_MOST_BYTES >> 20} MiB" if path.is_file() else "is not a file"
            hint = "a relative path starts at the pipeline file's folder"
            self.broken(f"'{place[-1]}': {path} {kind if path.exists() else 'does not exist'}", place, location, hint)
        # Reading a pipe or a device might never end, so return a path that does not exist.
        return path / path.name if path.exists() and not path.is_dir() else path

    def typed(self, node: ScalarNode, text: str) -> Any:
        if node.style is not None and node.tag == "tag:yaml.org,2002:str":
            return text
        tag = node.tag
        if node.style is None and text != node.value:
            tag = self.resolver.resolve(ScalarNode, text, (True, False))
        if _YAML_1_1.fullmatch(text):
            return text
        try:
            return self.constructor.construct_object(ScalarNode(tag, text, node.start_mark, node.end_mark))
        except (yaml.YAMLError, ValueError):
            return text

    def broken(
        self, what: str, place: Place, location: Location, hint: str | None = None, warning: bool = False
    ) -> None:
        self.document.broken.add(place)
        self.add(what, place, location, hint, warning)

    def add(self, what: str, place: Place, location: Location, hint: str | None, warning: bool = False) -> None:
        problem = Problem(what=what, key=dotted(place), hint=hint, severity="warning" if warning else "error")
        self.document.problems.append(_at(location, problem))


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs, because a pipeline file may be JSON, which writes some characters as two escapes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
