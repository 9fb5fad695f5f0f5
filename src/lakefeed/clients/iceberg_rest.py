"""Checks that a session could use an Iceberg REST catalog: logs in, and asks for ``/v1/config``.

Source: Iceberg's REST catalog specification and OAuth 2.0's client credentials (RFC 6749, section 4.4).
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urljoin

from pydantic import SecretStr

from lakefeed.clients.http import ask, fetch_token
from lakefeed.config.connections import Catalog
from lakefeed.errors import AccessDenied, ConfigError, ResourceMissing, Unreachable

_SERVER = "the REST catalog"


def ask_rest_catalog(catalog: Catalog) -> None:
    """Log in to a REST catalog and ask for its configuration, as every client does first."""
    url = f"{catalog.uri.rstrip('/')}/v1/config"
    if catalog.warehouse is not None:
        url += f"?warehouse={quote(catalog.warehouse, safe='')}"
    headers = {"accept": "application/json"}
    token = catalog.token.get_secret_value() if catalog.token else _traded(catalog)
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    status, body = ask(url, server=_SERVER, headers=headers)
    if status in (401, 403, 419):
        if token is None and catalog.secrets():
            return  # It answers. Its login is set by a property that only Iceberg's client supports.
        if token is None:
            what, hint = "requires a login", "set catalogs.<name>.credential or token from the environment"
        elif catalog.token is not None:
            what = "refuses the token: it is wrong or has expired"
            hint = "renew catalogs.<name>.token; with a credential lakefeed renews its tokens itself"
        else:
            what, hint = "refuses the token that the credential was traded for", "check catalogs.<name>.scope"
        raise AccessDenied(f"{_SERVER} {what} (HTTP status {status})", where=catalog.uri, hint=hint)
    _no_outage(status, catalog.uri)
    document = _json(body)
    if status in (400, 404) and catalog.warehouse is not None and (said := _error(document)):
        hint = "correct catalogs.<name>.warehouse: the name that the server gives it"
        what = f"{_SERVER} has no warehouse {catalog.warehouse}: {said}"
        raise ResourceMissing(what, where=catalog.uri, hint=hint)
    if status != 200 or not {"defaults", "overrides"} <= document.keys():
        hint = "give the address that /v1/config follows"
        what = f"this address answers, but not as an Iceberg REST catalog does (HTTP status {status})"
        raise ConfigError(what, where=catalog.uri, hint=hint)


def _traded(catalog: Catalog) -> str | None:
    """Return a token for the catalog's credential; None if the catalog has no credential."""
    if catalog.credential is None:
        return None
    client, found, secret = catalog.credential.get_secret_value().partition(":")
    return fetch_token(
        urljoin(f"{catalog.uri.rstrip('/')}/", catalog.oauth2_server_uri or "v1/oauth/tokens"),
        # Iceberg treats a credential without a colon as a secret without an id.
        client_id=client if found else None,
        client_secret=SecretStr(secret if found else client),
        scope=catalog.scope or "catalog",
        in_body=True,
        setting="catalogs.<name>.credential ('id:secret'), scope and oauth2_server_uri",
    )


def _no_outage(status: int, where: str) -> None:
    if status == 429 or (status >= 500 and status != 501):
        raise Unreachable(f"{_SERVER} answers with HTTP status {status}", where=where)


def _json(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _error(document: dict[str, Any]) -> str | None:
    """Return the message of a catalog's error, in the specification's format; None if there is none."""
    error = document.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return str(message)[:200] if message else None
