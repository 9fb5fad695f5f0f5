"""``lakefeed completion``: completes commands and options in bash, zsh and fish."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from lakefeed.cli.output import echo

PLACES = {
    "bash": "~/.local/share/bash-completion/completions/lakefeed",
    "zsh": "~/.zfunc/_lakefeed",
    "fish": "~/.config/fish/completions/lakefeed.fish",
}
THEN = {
    "bash": "a new shell has it, if the package bash-completion is installed; else add to ~/.bashrc: source {place}",
    "zsh": "add to ~/.zshrc, before compinit: fpath+=~/.zfunc",
    "fish": "a new shell has it",
}


@click.command()
@click.argument("shell", type=click.Choice(sorted(PLACES)), required=False)
@click.option("--install", is_flag=True, help="Write it where the shell looks for it.")
def completion(shell: str | None, install: bool) -> None:
    """Print the completion script for a shell (default: SHELL's).

    To try it in this shell: eval "$(lakefeed completion)".
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell)
    if shell not in PLACES or kind is None:
        raise click.UsageError(f"SHELL is none of {', '.join(sorted(PLACES))}: say which, as lakefeed completion bash")
    script = kind(click.get_current_context().find_root().command, {}, "lakefeed", "_LAKEFEED_COMPLETE").source()
    if not install:
        click.echo(script)
        return
    place = Path(PLACES[shell]).expanduser()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(script + "\n")
    echo(f"written to {place}; {THEN[shell].format(place=place)}")
