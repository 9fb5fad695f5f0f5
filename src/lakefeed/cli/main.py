"""The root command. A subcommand is imported at its use, so that ``lakefeed --help`` is quick."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import io
import itertools
import json
import os
import sys
from typing import Any

import click

from lakefeed import __version__
from lakefeed.cli.output import fail, is_json_output
from lakefeed.clients.spark.signals import exit_status, is_starting
from lakefeed.errors import FileDenied, LakefeedError, WorldError

# Command -> (module below lakefeed.cli, one line of help), in the order of --help.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("quickstart", "Start servers, fill a topic, land it in a table and query that, in one command."),
    "init": ("init", "Write a commented pipeline.yaml for a topic and its registered schema."),
    "check": ("check", "Find every mistake in a pipeline file, and with --connect in what it points at."),
    "test": ("test", "Run the test cases of a pipeline: records in, rows and dead letters out; asks no server."),
    "plan": ("plan", "Tell what a run would do, before it does it: DDL, offsets, files, requests, time."),
    "run": ("run", "Run a pipeline: topics in, table out."),
    "submit": ("submit", "Run a pipeline with spark-submit, on a cluster that has nothing of lakefeed."),
    "package": ("submit", "Write the application jar that submit hands to a cluster."),
    "dashboard": ("dashboard", "Show many feeds in a browser; hash-password for its users."),
    "status": ("status", "Show whether feeds run, since when, by which driver, and how they do."),
    "top": ("top", "Show all feeds that can be found on one live screen."),
    "lag": ("lag", "Show how far a feed or any consumer group is behind, in records and seconds."),
    "pause": ("control", "Pause a feed after its current batch; the pause survives a restart."),
    "resume": ("control", "Resume a paused feed where it stands."),
    "stop": ("control", "Stop a running feed after its current batch."),
    "change": ("control", "Change trigger and size of batches of a running feed, until its run ends."),
    "runs": ("runs", "Show what the runs of a feed did, as lines, JSON or a page."),
    "notify": ("notify", "Try the webhooks, mailboxes and commands that are notified of a feed."),
    "metrics": ("metrics", "The metrics of feeds: their table, a dashboard for Grafana, alerts for Prometheus."),
    "read": ("read", "Read chosen records once: to look at, into files or into a table."),
    "publish": ("publish", "Audit the branch of a table, and publish it; or drop what is not published."),
    "backfill": ("backfill", "Land old records that the table lacks and the feed will never read."),
    "verify": ("verify", "Prove that each record has landed once, or list what is missing or double."),
    "offsets": ("offsets", "Show where a feed stands, and move it: checkpoint, ledger and monitoring group together."),
    "adopt": ("adopt", "Take a table over from another tool, without a gap or a duplicate."),
    "export-offsets": ("export_offsets", "Hand a feed's position to a consumer group or a job of Spark."),
    "produce": ("produce", "Write rows from files, or generated ones, into a topic."),
    "schema": ("schema", "Show what the registry has, what the table has, and what would change."),
    "dead-letters": ("dead_letters", "Records that could not become rows: look, replay, drop."),
    "topics": ("topics", "Create topics, and look into them: records decoded, and a profile."),
    "tables": ("tables", "How tables are, and their upkeep: compact, expire, remove orphans."),
    "local": ("local", "The embedded stack: Kafka, Schema Registry, S3 store, Iceberg catalog."),
    "demo": ("demo", "The main job from end to end on the embedded stack, verified."),
    "examples": ("examples", "List the examples, and copy one to run and to change."),
    "bench": ("bench", "Count S3 requests against a real MinIO, and compare."),
    "manifest": ("manifest", "Print the Kubernetes objects of a pipeline, for Apache's or Kubeflow's Spark operator."),
    "conf": ("conf", "Print the Spark settings for spark-submit."),
    "image": ("image", "Write a Dockerfile and its bill of materials, with the versions in use."),
    "jars": ("jars", "Fetch and verify the locked jars."),
    "doctor": ("doctor", "Examine this machine: Java, Python, Spark, jars, memory, disk, ports, clock, store."),
    "docs": ("docs", "Print a page of the documentation, or open it in a browser."),
    "completion": ("completion", "Complete commands and options in bash, zsh or fish."),
}

# On a signal they complete their current work, with status 0.
_ENDING_WELL = (("run",), ("backfill",), ("produce",), ("tables", "maintain"))


class LazyGroup(click.Group):
    """Imports a subcommand's module only when that subcommand is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = COMMANDS[cmd_name][0]
        command: click.Command = getattr(importlib.import_module(f"lakefeed.cli.{name}"), cmd_name.replace("-", "_"))
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="lakefeed")
def root() -> None:
    """Lands Kafka topics in lakehouse tables on S3-compatible storage, with Spark.

    Commands that take a pipeline file read pipeline.yaml of this folder where none is named.

    Set LAKEFEED_DEBUG=1 to see stack traces.
    """


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 the world failed, 2 the input is wrong, 128 and more ended by a signal."""
    arguments = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # A terminal that has no such letter is no error.
    try:
        status = root.main(arguments, standalone_mode=False)
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
        sys.exit(1)  # As click, which sees it first where it prints itself.
    except OSError as error:
        _leave_stdout()
        sys.exit(fail(_of_system(error), as_json=False))


def _of_system(error: OSError) -> LakefeedError:
    """Return the error for a file or folder of this machine that does not take what a command writes."""
    what, where = error.strerror or str(error), str(error.filename) if error.filename else None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = where or "the output, or a folder that LAKEFEED_HOME, LAKEFEED_CACHE or TMPDIR names"
        return WorldError(what, where=where, hint="make room there, and run the command again")
    if where is not None and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return FileDenied(what, where=where, hint="let this user write there, or name another place")
    return WorldError(what, where=where)


def _leave_stdout() -> None:
    """Redirect stdout to nowhere: the rest of the buffer must not fail once more at the end."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupted(arguments: list[str]) -> int:
    """Return the exit status after a signal: 0 for a command that ends well on one, if it has not begun its work.

    ``run`` ends then as it does after a batch. The signal may come before click has read ``--exit-on-signal``.
    """
    if not is_starting() or not any(tuple(arguments[: len(command)]) == command for command in _ENDING_WELL):
        return exit_status()
    click.echo("stopped at the start: nothing was read or written", err=True)
    if is_json_output(arguments):
        click.echo(json.dumps({"stopped": True}))
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = [value for option, value in itertools.pairwise(words) if option == "--exit-on-signal" and value.isdigit()]
    return int(given[-1]) if given else 0


if __name__ == "__main__":
    main()
