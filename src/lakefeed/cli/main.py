"""The root command. A subcommand is imported only when it is used, so that ``lakefeed --help`` is quick."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import sys
from typing import get_args

import click

from lakefeed import __version__
from lakefeed.cli.options import CommandGroup
from lakefeed.cli.output import fail, is_json_output
from lakefeed.clients.spark.signals import exit_status, is_starting
from lakefeed.errors import FileDenied, LakefeedError, WorldError
from lakefeed.plugins import CliCommand, Section, installed_commands


def _core(target: str, text: str, section: Section) -> CliCommand:
    return CliCommand(f"lakefeed.cli.{target}", text, section)


# The order is that of --help.
COMMANDS: dict[str, CliCommand] = {
    "check": _core("check:check", "Find all mistakes in a pipeline file; --connect asks servers.", "run"),
    "plan": _core("plan:plan", "Predict a run: DDL, offsets, files, requests, time.", "run"),
    "run": _core("run:run", "Land topics in tables, as a pipeline file says.", "run"),
    "status": _core("status:status", "Show whether feeds run, and the lag of feeds or of a group.", "watch"),
    "verify": _core("verify:verify", "Prove that each record has landed once.", "look"),
    "offsets": _core("offsets:offsets", "Show a feed's offsets, and move the feed.", "repair"),
}

# After a signal, these commands complete their current work and exit with status 0.
_ENDING_WELL = (("run",), ("backfill",), ("topics", "produce"), ("tables", "maintain"))


class Lakefeed(CommandGroup):
    """The root group of commands: help lists them by section, the core's commands before those of packages."""

    def added(self) -> dict[str, CliCommand]:
        """Return the commands that packages add, by name; a package cannot replace a command of the core."""
        others = installed_commands().items()
        return {**COMMANDS, **{name: each for name, each in others if " " not in name and name not in COMMANDS}}

    def whole_name(self, name: str) -> str:
        return name

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = self.added()
        for section in get_args(Section):
            rows = [(name, command.help) for name, command in commands.items() if command.section == section]
            if rows:
                with formatter.section(section.capitalize()):
                    formatter.write_dl(rows)


@click.group(cls=Lakefeed, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="lakefeed")
def root() -> None:
    """Lands Kafka topics in lakehouse tables on S3-compatible storage, with Spark.

    Commands that take a pipeline file use pipeline.yaml in the current folder by default.

    Set LAKEFEED_DEBUG=1 to see stack traces.
    """


def main(argv: list[str] | None = None, *, command: click.Command = root) -> None:
    """Run a command and exit: 0 success, 1 a server failed, 2 the user's mistake, above 128 a signal."""
    arguments = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # For characters that the terminal's encoding lacks.
    try:
        status = command.main(arguments, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except LakefeedError as error:
        sys.exit(fail(error, as_json=is_json_output(arguments)))
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(_interrupted(arguments))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        _leave_stdout()
        sys.exit(1)  # The status with which click exits if the pipe breaks while click itself prints.
    except OSError as error:
        _leave_stdout()
        sys.exit(fail(_of_system(error), as_json=False))


def _of_system(error: OSError) -> LakefeedError:
    """Return the error for a local file or folder that a command cannot use."""
    what, where = error.strerror or str(error), str(error.filename) if error.filename else None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = where or "the output, or a folder that LAKEFEED_HOME, LAKEFEED_CACHE or TMPDIR names"
        return WorldError(what, where=where, hint="free disk space, and run the command again")
    if where is not None and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return FileDenied(what, where=where, hint="let this user write there, or name another place")
    return WorldError(what, where=where)


def _leave_stdout() -> None:
    """Redirect stdout to /dev/null after a failed write; otherwise Python's flush at exit would fail, too."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupted(arguments: list[str]) -> int:
    """Return the exit status after a signal.

    A command of ``_ENDING_WELL`` that has not begun its work exits with 0, or with the value of ``--exit-on-signal``.
    This function reads that option itself, because click may not have parsed the arguments yet.
    """
    if not is_starting() or not any(tuple(arguments[: len(command)]) == command for command in _ENDING_WELL):
        return exit_status()
    click.echo("stopped at the start: the command has read and written nothing", err=True)
    if is_json_output(arguments):
        click.echo(json.dumps({"stopped": True}))
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = [value for option, value in itertools.pairwise(words) if option == "--exit-on-signal" and value.isdigit()]
    return int(given[-1]) if given else 0


if __name__ == "__main__":
    main()
