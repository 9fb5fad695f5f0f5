"""Prepare a process that runs tests: set its signals, a folder for drivers' files, and the guardian of its servers."""

import atexit
import os
import shutil
import signal
import tempfile

from tests.support import guardian


def pytest_configure() -> None:
    """Prepare this process; pytest calls this in the workers of pytest-xdist too."""
    # A shell starts background jobs with SIGINT ignored, and the commands that tests start would ignore SIGINT, too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "LAKEFEED_HOME" not in os.environ:
        # Drivers' files and traces must not land in the home of the user who runs the tests. Workers of pytest-xdist
        # inherit this variable.
        home = tempfile.mkdtemp(prefix="lakefeed-tests-home-")
        os.environ["LAKEFEED_HOME"] = home
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    guardian.watch()
