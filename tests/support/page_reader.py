"""Follows a page of the documentation as a reader does: types its commands and its Python, block after block."""

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
"""It is not typed: the tests run with what it would install."""


def lasts(words: list[str]) -> bool:
    """Check that a command of lakefeed ends only when it is stopped."""
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
    """A reader at a shell in a folder, with servers and a feed that has run.

    Attributes:
        folder: where the commands are typed.
        environment: names the servers.
        names: what the page's Python has to begin with; blocks of one page continue each other.
        seconds: how long a command that lasts is left alone before it is stopped.
        in_process: whether commands and Python run in this process, in its Spark session; else each in one of its own.
        test: blocks that this test runs are run too.
    """

    folder: Path
    environment: Mapping[str, str]
    names: dict[str, Any]
    seconds: float = 15
    in_process: bool = True
    test: str | None = None
    _printed: dict[str, str] = field(default_factory=dict)

    def follow(self, blocks: Iterable[Block]) -> list[str]:
        """Run the blocks of a page; return what is not as the page says."""
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
            exec(compile(block.text, str(block), "exec"), self.names)  # It is what the page shows.
            return
        file = self.folder / "block.py"
        file.write_text(block.text)
        self.type(f"{shlex.quote(sys.executable)} {file}")

    def _run_shell(self, block: Block) -> list[str]:
        commands = [command for command in commands_in(block) if not command.startswith(INSTALLATION)]
        if any("eval" in command for command in commands):
            commands = ["\n".join(commands)]  # What a line has set is there in the next one.
        statuses = expected_statuses(block)
        for command in commands:
            self.type(command, status=statuses.get(command, 0))
        shown = printed_in(block)
        return [fault for command, text in shown.items() for fault in _compared(text, self._printed[command])]

    def type(self, command: str, *, status: int = 0) -> str:
        """Run a command to its end, or for a while if it has none; return what it prints."""
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
        """Run a command in this process, whose Spark session is the one that runs."""
        printed = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        status: object = 0
        stdin = sys.stdin
        sys.stdin = io.StringIO("y\n")  # To the question whether it is to be done.
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
        # The shell becomes its last command; of one that a signal ended, a user's shell shows 128 and the signal.
        status = ran.returncode if ran.returncode >= 0 else 128 - ran.returncode
        assert status == expected, f"status {status}: {command}\n{ran.stdout}"
        return ran.stdout

    def _until_stopped(self, words: list[str]) -> str:
        """Start a command, leave it alone for a while, and stop it as Ctrl-C does."""
        log = self.folder / f"{uuid.uuid4().hex}.log"
        running = Running(words[1:], self.environment, log)
        if words[1] == "run":
            running.wait_until_it_says("; encoder: ")  # The JVM has started.
        try:
            running.process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            status = running.ask_to_stop(signal.SIGINT)
            # 130 is that of a command that has nothing to complete. With --watch it is the status of the last look.
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
    """Return a command without what stands in quotes."""
    return re.sub(r"'[^']*'|\"[^\"$`]*\"", "", command)
