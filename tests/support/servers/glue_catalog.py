"""Run moto's Glue in this process, with the check of versions that AWS documents.

A change of a table names the version that it replaces. moto ignores this version, so two commits at once would both
succeed.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse
from moto.moto_server.threaded_moto_server import ThreadedMotoServer


@contextmanager
def glue_catalog(*, guards: bool = True) -> Iterator[str]:
    """Run a server until the block ends; yield its address. Without ``guards``, the server behaves as moto does."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    change, lock = GlueResponse.update_table, threading.Lock()

    def update_table(self: GlueResponse) -> Any:
        named = self.parameters
        with lock:
            table = self.glue_backend.get_table(named["DatabaseName"], named["TableInput"]["Name"])
            if named.get("VersionId", table.as_dict()["VersionId"]) != table.as_dict()["VersionId"]:
                raise JsonRESTError("ConcurrentModificationException", "on purpose")
            return change(self)

    if guards:
        GlueResponse.update_table = update_table  # type: ignore[method-assign]
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        GlueResponse.update_table = change  # type: ignore[method-assign]
        server.stop()
