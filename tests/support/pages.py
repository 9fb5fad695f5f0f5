"""Read all pages that a server links to."""

import html
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from urllib.parse import urldefrag, urljoin, urlsplit

MOST_PAGES = 300
_LINK = re.compile(r"""(?:href|src|action)=(?:"([^"]*)"|'([^']*)')""")


def answer(url: str, *, headers: Mapping[str, str] | None = None, seconds: float = 30) -> tuple[int, str]:
    """Return the status and the text of a page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=seconds) as page:
            return page.status, page.read().decode("utf-8", errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", errors="replace")


def every_page(start: str, *, further: Iterable[str] = ()) -> dict[str, str]:
    """Return the texts of a page and of all linked pages of the same server, without styles and scripts."""
    found: dict[str, str] = {}
    left = [start, *further]
    while left and len(found) < MOST_PAGES:
        url = left.pop(0)
        if url in found:
            continue
        _, found[url] = answer(url)
        for double, single in _LINK.findall(found[url]):
            link = urldefrag(urljoin(url, html.unescape(double or single)))[0]
            is_page = "/static/" not in link and "/kill/" not in link
            if urlsplit(link).netloc == urlsplit(start).netloc and is_page and link not in found:
                left.append(link)
    assert len(found) < MOST_PAGES, "there are more pages"
    return found
