"""Serve wheels as a package index does: a folder as PEP 503 describes it, over HTTP on loopback."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copy
from threading import Thread

PAGE = "<!DOCTYPE html><html><body>{}</body></html>"


def write_index(folder: Path, files: list[Path]) -> None:
    """Write a page for all projects and one for each project, with the SHA-256 of its files."""
    links: dict[str, list[str]] = {}
    for file in files:
        project = re.sub(r"[-_.]+", "-", file.name.partition("-")[0]).lower()
        (folder / project).mkdir(parents=True, exist_ok=True)
        copy(file, folder / project)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        links.setdefault(project, []).append(f'<a href="{file.name}#sha256={digest}">{file.name}</a>')
    for project, entries in links.items():
        (folder / project / "index.html").write_text(PAGE.format("\n".join(entries)))
    (folder / "index.html").write_text(PAGE.format("\n".join(f'<a href="{name}/">{name}</a>' for name in links)))


@contextmanager
def package_index(folder: Path, files: list[Path]) -> Iterator[tuple[str, list[str]]]:
    """Serve the files; yield the index's URL and the names of the files that clients have fetched."""
    write_index(folder, files)
    fetched: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            fetched.append(Path(self.path).name)

        def log_error(self, *_: object) -> None:
            """Log nothing about projects that this index lacks."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", fetched
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
