"""Credentials in URLs: found, and refused."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote

_PARAMETER = re.compile(r"[?&;(,#]\s*([^=&;?(),#\s]+)\s*=\s*(?=[^&;)\s])")
_SECRET = re.compile(
    r"(?i)passw|passphrase|^pass$|pwd|secret|token|credential|(api|access|private|account|shared)[._-]?key"
    r"|^sig$|signature|^auth$|authorization|^user(name)?$|jaas"
)
HINT = "messages, logs and Spark's UI show URLs"


def credentials_in(url: str) -> str | None:
    """What of a URL logs in, in words; None if nothing does."""
    if re.search(r"//[^/?#]*@", url):
        return "a user or a password before '@'"
    for found in _PARAMETER.finditer(url):
        if _SECRET.search(name := unquote(found[1])):
            return f"the parameter '{name[:40]}'"
    return None


def refuse_credentials(url: str, *, instead: str) -> None:
    """Makes sure that a URL may be shown.

    Raises:
        ValueError: there are credentials in it; the message does not repeat them.
    """
    if (found := credentials_in(url)) is not None:
        raise ValueError(f"credentials do not belong in a URL, since {HINT}: take out {found}, and use {instead}")


def is_loopback(host: str | None) -> bool:
    """Whether what is sent there stays on this machine."""
    if host is None:
        return True
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
