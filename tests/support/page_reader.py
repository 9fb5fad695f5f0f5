"""Follow a page of the documentation as a reader does: type its commands and its Python, block after block."""

import io
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakefeed.cli.main import main
from tests.support.blocks import SHELL, Block, commands_in, differences, expected_statuses, printed_in
from tests.support.cli import Running

_OF_A_SHELL = frozenset("|&;<>$`(")
_ENDLESS = {"--watch", "--every"}
_NAMED = re.compile(r"# (\w+\.yaml)\n")
INSTALLATION = "pip install"
"""Commands that begin with these words are skipped, because the tests run with the packages already installed."""


def lasts(words: list[str]) -> bool:
    """Check whether a lakefeed command runs until a user stops it."""
    match words[1:]:
        case ["run", *options]:
            return not {"--once", "--batch"} & set(options)
        case ["dashboard", "hash-password", *_]:
            return False
        case ["dashboard", *_] | ["topics", "tail", *_]:
            return "--output" not in words
    return any(word in _ENDLESS for word in words)


@dataclass
class Reader:
    """A reader at a shell in a folder, with running servers and a feed that has already run.

    Attributes:
        folder: the working directory of the commands.
        environment: variables with the servers' addresses.
        names: variables for the first Python block of the page; later blocks also see the variables of earlier blocks.
        seconds: the time after which a command that does not end by itself is stopped.
        in_process: whether commands and Python run in this process and its Spark session, or in separate processes.
        test: the file of this test; blocks that name this file run, too.
    """

    folder: Path
    environment: Mapping[str, str]
    names: dict[str, Any]
    seconds: float = 15
    in_process: bool = True
    test: str | None = None
    _printed: dict[str, str] = field(default_factory=dict)

    def follow(self, blocks: Iterable[Block]) -> list[str]:
        """Run the blocks of a page; return the lines that differ from the page."""
        wrong = []
        for block in blocks:
            if not block.is_run or block.test not in (None, self.test):
                continue
            try:
                wrong += [f"{block}: {fault}" for fault in self._run(block)]
            except (Exception, SystemExit) as error:
                wrong.append(f"{block}: {type(error).__name__}: {error}")
        return wrong

    def _run(self, block: Block) -> list[str]:
        if block.command is not None:
            if block.command not in self._printed:
                self.type(block.command)
            return _compared(block.text, self._printed[block.command])
        if block.language in SHELL:
            return self._run_shell(block)
        if block.language == "python":
            self._run_python(block)
        if block.language == "sql":
            self.names["spark"].sql(block.text).collect()
        if block.language == "yaml" and (named := _NAMED.match(block.text)):
            (self.folder / named[1]).write_text(block.text)
        return []

    def _run_python(self, block: Block) -> None:
        if self.in_process:
            # The executed code comes only from lakefeed's own pages.
            exec(compile(block.text, str(block), "exec"), self.names)
            return
        file = self.folder / "block.py"
        file.write_text(block.text)
        self.type(f"{shlex.quote(sys.executable)} {file}")

    def _run_shell(self, block: Block) -> list[str]:
        commands = [command for command in commands_in(block) if not command.startswith(INSTALLATION)]
        if any("eval" in command for command in commands):
            commands = ["\n".join(commands)]  # Later commands need the variables that ``eval`` sets.
        statuses = expected_statuses(block)
        for command in commands:
            self.type(command, status=statuses.get(command, 0))
        shown = printed_in(block)
        return [fault for command, text in shown.items() for fault in _compared(text, self._printed[command])]

    def type(self, command: str, *, status: int = 0) -> str:
        """Run a command to its end, or for a while if it does not end by itself; return its output."""
        words = shlex.split(command)
        print(f"\n$ {command}", flush=True)
        if words[0] == "lakefeed" and lasts(words) and not status:
            self._printed[command] = self._until_stopped(words)
        elif words[0] != "lakefeed" or not self.in_process or _OF_A_SHELL & set(_unquoted(command)):
            self._printed[command] = self._in_a_shell(command, status)
        else:
            self._printed[command] = self._here(words, status)
        print(self._printed[command], flush=True)
        return self._printed[command]

    def _here(self, words: list[str], expected: int) -> str:
        """Run a command in this process, in its running Spark session."""
        printed = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        status: object = 0
        stdin = sys.stdin
        sys.stdin = io.StringIO("y\n")  # Answer the confirmation that the command asks for.
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                main(words[1:])
        except SystemExit as ended:
            status = ended.code
        finally:
            sys.stdin = stdin
        text = printed.buffer.getvalue().decode("utf-8")
        assert (status or 0) == expected, f"status {status}: {shlex.join(words)}\n{text}"
        return text

    def _in_a_shell(self, command: str, expected: int) -> str:
        (self.folder / "bin").mkdir(exist_ok=True)
        program = self.folder / "bin" / "lakefeed"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m lakefeed.cli "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{self.environment['PATH']}"
        ran = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**self.environment, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        # bash replaces itself by its last command. If a signal ends that command, the status is negative here, while a
        # user's shell shows 128 plus the signal.
        status = ran.returncode if ran.returncode >= 0 else 128 - ran.returncode
        assert status == expected, f"status {status}: {command}\n{ran.stdout}"
        return ran.stdout

    def _until_stopped(self, words: list[str]) -> str:
        """Start a command, let it run for a while, and stop it as Ctrl-C does."""
        log = self.folder / f"{uuid.uuid4().hex}.log"
        running = Running(words[1:], self.environment, log)
        if words[1] == "run":
            running.wait_until_it_says("; encoder: ")  # By this line, the JVM has started.
        try:
            running.process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            status = running.ask_to_stop(signal.SIGINT)
            # The command exits with 130 if it has nothing to complete. With --watch, it exits with the status of its
            # last look.
            completed = self._status_of_one_look(words) if "--watch" in words else 0
            assert status in (completed, 130), f"status {status} after Ctrl-C: {shlex.join(words)}\n{running.said()}"
        else:
            raise AssertionError(f"ended by itself: {shlex.join(words)}\n{running.said()}")
        return running.said()

    def _status_of_one_look(self, words: list[str]) -> int:
        once = [sys.executable, "-m", "lakefeed.cli", *(word for word in words[1:] if word != "--watch")]
        ran = subprocess.run(once, cwd=self.folder, env=self.environment, capture_output=True, timeout=120, check=False)
        return ran.returncode


def _compared(shown: str, printed: str) -> list[str]:
    return [f"is not printed: {line}\n--- printed:\n{printed}" for line in differences(shown, printed)]


def _unquoted(command: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"$`]*\"", "", command)
