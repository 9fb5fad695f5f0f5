"""Prepare a process that runs tests: its signals, its folder for drivers' files, the guardian of its servers."""

import atexit
import os
import shutil
import signal
import tempfile

from tests.support import guardian


def pytest_configure() -> None:
    """Prepare this process; pytest calls it in each worker of pytest-xdist too."""
    # A shell starts background jobs with SIGINT ignored, and the commands that tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "LAKEFEED_HOME" not in os.environ:
        # Drivers' files and traces of runs are no one's who runs the tests; workers inherit the folder.
        home = tempfile.mkdtemp(prefix="lakefeed-tests-home-")
        os.environ["LAKEFEED_HOME"] = home
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    guardian.watch()
