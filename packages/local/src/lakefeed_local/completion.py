"""``lakefeed completion``: prints scripts that complete commands and options in a shell."""

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
    "bash": "new shells use it if the package bash-completion is installed; else add to ~/.bashrc: source {place}",
    "zsh": "add to ~/.zshrc, before compinit: fpath+=~/.zfunc",
    "fish": "new shells use it",
}


@click.command()
@click.argument("shell", type=click.Choice(sorted(PLACES)), required=False)
@click.option("--install", is_flag=True, help="Write the script into the shell's folder.")
def completion(shell: str | None, install: bool) -> None:
    """Print the completion script for a shell (default: SHELL's).

    To try it in this shell: eval "$(lakefeed completion)".
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell)
    if shell not in PLACES or kind is None:
        raise click.UsageError(
            f"SHELL is not one of {', '.join(sorted(PLACES))}: name a shell, as in lakefeed completion bash"
        )
    script = kind(click.get_current_context().find_root().command, {}, "lakefeed", "_LAKEFEED_COMPLETE").source()
    if not install:
        click.echo(script)
        return
    place = Path(PLACES[shell]).expanduser()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(script + "\n")
    echo(f"written to {place}; {THEN[shell].format(place=place)}")
