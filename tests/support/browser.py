"""Run a real headless browser for tests, without root: the Chromium of the system or of npm's registry.

The registry's Chromium is ``@sparticuz/chromium``, locked in ``tools/npm.lock``: a program with its libraries and a
font, 70 MB, unpacked once into the per-user cache. ``LAKEFEED_TEST_BROWSER`` names another program. If no browser works
on a machine, the error says what to do; no test is skipped.
"""

import io
import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from playwright.sync_api import Browser, BrowserContext, Error, Page, Request, sync_playwright

from tools import npm_packages

SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "@sparticuz/chromium"
OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none")
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir prefix="relative">fonts</dir>
<dir>/usr/share/fonts</dir>
<cachedir>{cache}</cachedir>
</fontconfig>
"""
DESKTOP = (1280, 900)
PHONE = (320, 720)


class NoBrowser(Exception):
    """No browser works on this machine; the message says what to do."""


@dataclass(frozen=True)
class Program:
    """A browser's executable and the environment variables that it needs."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def headless_browser() -> Iterator[Browser]:
    """Yield a headless Chromium; raise NoBrowser if none works on this machine."""
    program = find_program()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=program.path, args=list(OPTIONS), env={**os.environ, **program.environment}
            )
        except Error as error:
            raise NoBrowser(
                f"{program.path} does not start: {error.message[:500]}\n"
                "Next: install Chromium (apt-get install chromium), or set LAKEFEED_TEST_BROWSER to one that works."
            ) from None
        try:
            yield browser
        finally:
            browser.close()


def find_program() -> Program:
    """Return the browser that ``LAKEFEED_TEST_BROWSER`` names, the system's Chromium, or the registry's Chromium."""
    if given := os.environ.get("LAKEFEED_TEST_BROWSER"):
        return Program(Path(given))
    for name in SYSTEM:
        if found := shutil.which(name):
            return Program(Path(found))
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NoBrowser(
            f"there is no Chromium on the PATH, and the one of the registry is not for {platform.system()} "
            f"{platform.machine()}.\nNext: install Chromium, or set LAKEFEED_TEST_BROWSER to one."
        )
    return _unpacked()


def _unpacked() -> Program:
    """Unpack the registry's browser; the folder is renamed at the end, so that no process uses half a browser."""
    folder = npm_packages.cache() / "browser" / f"chromium-{npm_packages.locked(PACKAGE)['version']}"
    if not folder.is_dir():
        import brotli

        parts = npm_packages.read(PACKAGE, "bin/chromium.br", "bin/al2023.tar.br", "bin/fonts.tar.br")
        program, libraries, fonts = (brotli.decompress(part) for part in parts)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            partial = Path(name) / "chromium"
            partial.mkdir()
            for content in (libraries, fonts):
                with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                    archive.extractall(partial, filter="data")
            (partial / "chromium").write_bytes(program)
            (partial / "chromium").chmod(0o755)
            if not folder.is_dir():
                partial.rename(folder)
    # Fontconfig resolves a relative cache path against the working directory, which is the repository.
    fonts = FONTS.format(cache=escape(str(folder / "font-cache")))
    if not (folder / "fonts.conf").is_file() or (folder / "fonts.conf").read_text() != fonts:
        (folder / "fonts.conf").write_text(fonts)
    return Program(
        folder / "chromium",
        {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder), "FONTCONFIG_FILE": "fonts.conf"},
    )


@dataclass
class Tab:
    """A page in its own browser context, and the page's errors and requests to other servers.

    Attributes:
        origin: the server's origin; requests to other origins are in ``outside``.
        errors: errors of scripts, of the console, and of the content security policy.
    """

    page: Page
    origin: str
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def open(self, path: str = "/") -> Page:
        """Open a page of the server."""
        self.page.goto(self.origin + path)
        return self.page

    def violations(self) -> list[str]:
        """Return all accessibility violations that axe finds, with their elements."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(axe_source())
        result: dict[str, Any] = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{found['id']} ({found['impact']}): {found['help']}: {node['html'][:200]} {node.get('failureSummary', '')}"
            for found in result["violations"]
            for node in found["nodes"]
        ]

    def scrolls_sideways(self) -> bool:
        """Check whether the page is wider than the window, so that it scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def check(self) -> None:
        """Fail if the page had an error or sent a request to another origin."""
        assert not self.errors, self.errors
        assert not self.outside, self.outside


@contextmanager
def tab(
    browser: Browser,
    origin: str,
    *,
    size: tuple[int, int] = DESKTOP,
    dark: bool = False,
    cookies: Sequence[Any] = (),
    **options: Any,
) -> Iterator[Tab]:
    """Yield a tab in its own browser context; call ``check`` at the end."""
    context: BrowserContext = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        locale="en-GB",
        timezone_id="Europe/Berlin",
        reduced_motion="reduce",
        **options,
    )
    try:
        if cookies:
            context.add_cookies(list(cookies))
        page = context.new_page()
        page.set_default_timeout(20_000)
        opened = Tab(page, origin.rstrip("/"))
        _watch(page, opened)
        yield opened
        opened.check()
    finally:
        context.close()


def _watch(page: Page, opened: Tab) -> None:
    def requested(request: Request) -> None:
        if not request.url.startswith((opened.origin + "/", "data:", "blob:")):
            opened.outside.append(request.url)

    page.on("pageerror", lambda error: opened.errors.append(str(error)))
    page.on("console", lambda message: opened.errors.append(message.text) if message.type == "error" else None)
    page.on("request", requested)


@cache
def axe_source() -> str:
    """Return the source of axe-core, which checks a page's accessibility."""
    [source] = npm_packages.read("axe-core", "axe.min.js")
    return source.decode()
