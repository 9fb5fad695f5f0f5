"""``lakefeed examples``: list the packaged examples, and copy one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from textwrap import fill, shorten

import click

from lakefeed.cli.options import FOLDER, output_option
from lakefeed.cli.output import emit
from lakefeed.clients.environment import packaged_root
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed_local.docs_command import with_commands

PAGE = "quickstart"

_FOLDER = "examples"
_COMMAND = re.compile(r"^#   ((?:lakefeed|python|aws) .+)$", re.MULTILINE)
_CONTINUED = re.compile(r" \\\n# +")
_MENTIONED = re.compile(r"examples/[A-Za-z0-9_./-]+\.[a-z]+")
NOTES = ("Needs", "Gives", "Change")
"""The names of the notes in the comment at the top of an example's pipeline file."""
_SCHEMA_LINE = re.compile(r"\A# yaml-language-server: .*\n#\n")


@click.group()
def examples() -> None:
    """List the examples, and copy one to run and change."""


@examples.command("list")
@output_option
def list_examples() -> None:
    """List the examples."""
    found = packaged_examples()
    emit([_document(example) for example in found], _list_lines(found))


@examples.command()
@click.argument("name")
@click.option("--to", type=FOLDER, default=Path("."), help="The folder to copy into.  [default: the current one]")
@output_option
def copy(name: str, to: Path) -> None:
    """Copy the example NAME into a folder, below examples/. Prints the commands that run it."""
    example = packaged_example(name)
    copied = copy_example(example, to)
    emit({**_document(example), "copied": [str(to / file) for file in copied]}, _copy_lines(example, to, copied))


def _document(example: PackagedExample) -> dict[str, object]:
    pipelines = [
        {
            "file": str(file),
            "description": example.description(file),
            "commands": example.commands(file),
            **{name.lower(): text for name, text in example.notes(file).items()},
        }
        for file in example.pipelines
    ]
    return {"name": example.name, "pipelines": pipelines}


def _list_lines(found: list[PackagedExample]) -> Iterator[str]:
    for example in found:
        for number, file in enumerate(example.pipelines):
            sentence = shorten(example.description(file).split(". ")[0], 90, placeholder=" …")
            yield f"{example.name if number == 0 else '':<24} {file.name:<28} {sentence}"
    yield "\nlakefeed examples copy NAME copies one"


def _copy_lines(example: PackagedExample, to: Path, copied: list[Path]) -> Iterator[str]:
    for file in copied:
        yield f"  {to / file}"
    yield '\nIf no servers run yet: lakefeed local up; eval "$(lakefeed local env)"'
    if to != Path("."):
        yield f"Then, in {to}:"
    for file in example.pipelines:
        yield f"\n{fill(example.description(file), 100)}\n"
        for command in example.commands(file):
            yield f"  {command}"
        yield ""
        for name, text in example.notes(file).items():
            yield fill(f"{name + ':':<8} {text}", 100, subsequent_indent=" " * 9, break_on_hyphens=False)


@dataclass(frozen=True)
class PackagedExample:
    """A folder with pipeline files and perhaps Python modules.

    ``files`` are the paths, relative to ``root``, of the folder's files and of files elsewhere that they mention, such
    as data.
    """

    name: str
    root: Path
    files: tuple[Path, ...]

    @property
    def pipelines(self) -> list[Path]:
        """The pipeline files in the order to run them: a file comes after the files that its note "Needs" names."""
        own = [file for file in self.files if file.parts[1] == self.name and file.suffix == ".yaml"]
        by_name = sorted(own, key=lambda file: (file.name != "pipeline.yaml", file.name))
        needs = {file: [other for other in by_name if other.name in self.notes(file)["Needs"]] for file in by_name}
        return list(TopologicalSorter(needs).static_order())

    @property
    def main(self) -> Path:
        return self.root / self.pipelines[0]

    def description(self, file: Path) -> str:
        """Return the comment at the top of a pipeline file, without its commands and notes."""
        text = self._top(file).partition(f"\n# {NOTES[0]}:")[0]
        lines = [line.removeprefix("#").strip() for line in text.splitlines() if not line.startswith("#   ")]
        return " ".join(line for line in lines if line and not line.startswith("yaml-language-server"))

    def commands(self, file: Path) -> list[str]:
        """Return the commands in the comment of a pipeline file; they run in the folder that contains ``examples/``."""
        return _COMMAND.findall(_CONTINUED.sub(" ", self._top(file)))

    def notes(self, file: Path) -> dict[str, str]:
        """Return the notes in the comment of a pipeline file, by name."""
        words = " ".join(line.removeprefix("#").strip() for line in self._top(file).splitlines())
        parts = re.split(rf"\b({'|'.join(NOTES)}): ", words.partition(f" {NOTES[0]}: ")[2])
        return dict(zip(NOTES, (part.strip() for part in parts[::2]), strict=True))

    def _top(self, file: Path) -> str:
        return (self.root / file).read_text("utf-8").partition("\nname:")[0]


def packaged_examples() -> list[PackagedExample]:
    root = packaged_root(_FOLDER)
    found = []
    for folder in sorted({file.parent for file in (root / _FOLDER).glob("*/*.yaml")}):
        files = {file.relative_to(root) for file in folder.rglob("*") if file.is_file()}
        files = {file for file in files if "__pycache__" not in file.parts}
        files |= set(_mentioned(root, files))
        files |= set(_mentioned(root, files))  # Add also the files that the added files mention.
        found.append(PackagedExample(folder.name, root, tuple(sorted(files))))
    return found


def packaged_example(name: str) -> PackagedExample:
    """Return an example; raise ResourceMissing, with a similar name, if no example has this name."""
    there = {example.name: example for example in packaged_examples()}
    if name not in there:
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean {near[0]}?" if near else "lakefeed examples list shows all"
        raise ResourceMissing(f"there is no example '{name}'", hint=hint)
    return there[name]


def copy_example(example: PackagedExample, to: Path) -> list[Path]:
    """Copy an example's files into a folder, below ``examples/``; return their paths relative to the folder.

    Raises:
        ConfigError: a file already exists with other content; then nothing is copied.
    """
    contents = {file: _content(example.root / file) for file in example.files}
    for file, content in contents.items():
        if (to / file).exists() and (to / file).read_bytes() != content:
            hint = "name another folder: --to FOLDER"
            raise ConfigError("the file already exists with other content", where=str(to / file), hint=hint)
    for file, content in contents.items():
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        (to / file).write_bytes(content)
    return sorted(contents)


def _mentioned(root: Path, files: set[Path]) -> Iterator[Path]:
    for file in files:
        if file.suffix in (".yaml", ".py"):
            for name in _MENTIONED.findall((root / file).read_text("utf-8")):
                if (root / name).is_file():
                    yield Path(name)


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    if file.suffix == ".md":
        return with_commands(content.decode()).encode()
    if file.suffix != ".yaml":
        return content
    # Remove the first line, which names a JSON Schema that only a clone of the repository has.
    return _SCHEMA_LINE.sub("", content.decode()).encode()
