"""Check that an Iceberg REST catalog accepts the login and serves ``/v1/config``.

Source: Iceberg's REST catalog specification and OAuth 2.0's client credentials (RFC 6749, section 4.4).
"""

from __future__ import annotations

from urllib.parse import quote, urljoin

from pydantic import SecretStr

from lakefeed.clients.http import ask, fetch_token, json_object, refuse_outage
from lakefeed.config.connections import Catalog
from lakefeed.errors import AccessDenied, ConfigError, ResourceMissing

_SERVER = "the REST catalog"


def ask_rest_catalog(catalog: Catalog) -> None:
    """Request a REST catalog's configuration, as every client does first; raise the error that explains a refusal."""
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
            return  # The login is a property that only Iceberg's client can use.
        if token is None:
            what, hint = "requires a login", "set catalogs.<name>.credential or token from the environment"
        elif catalog.token is not None:
            what = "refuses the token: it is wrong or has expired"
            hint = "renew catalogs.<name>.token; with a credential lakefeed renews its tokens itself"
        else:
            what, hint = "refuses the token that it issued for the credential", "check catalogs.<name>.scope"
        raise AccessDenied(f"{_SERVER} {what} (HTTP status {status})", where=catalog.uri, hint=hint)
    refuse_outage(status, server=_SERVER, where=catalog.uri)
    document = json_object(body)
    error = document.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    if status in (400, 404) and catalog.warehouse is not None and message:
        hint = "correct catalogs.<name>.warehouse: the server has its own name for it"
        what = f"{_SERVER} has no warehouse {catalog.warehouse}: {str(message)[:200]}"
        raise ResourceMissing(what, where=catalog.uri, hint=hint)
    if status != 200 or not {"defaults", "overrides"} <= document.keys():
        hint = "correct catalogs.<name>.uri: the catalog's root, which ends before /v1/config"
        what = f"this address answers, but not as an Iceberg REST catalog does (HTTP status {status})"
        raise ConfigError(what, where=catalog.uri, hint=hint)


def _traded(catalog: Catalog) -> str | None:
    """Return an access token fetched with the catalog's credential; None if the catalog has no credential."""
    if catalog.credential is None:
        return None
    client, has_id, secret = catalog.credential.get_secret_value().partition(":")
    return fetch_token(
        urljoin(f"{catalog.uri.rstrip('/')}/", catalog.oauth2_server_uri or "v1/oauth/tokens"),
        # Iceberg treats a credential without a colon as a secret without an id.
        client_id=client if has_id else None,
        client_secret=SecretStr(secret if has_id else client),
        scope=catalog.scope or "catalog",
        in_body=True,
        setting="catalogs.<name>.credential ('id:secret'), scope and oauth2_server_uri",
    )
