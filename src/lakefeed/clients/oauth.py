"""Trades a client's credentials for a token of OAuth 2.0 (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote_plus, urlencode

from pydantic import SecretStr

from lakefeed.clients.http import ask
from lakefeed.errors import AccessDenied, ConfigError, Unreachable

_SERVER = "the OAuth2 server"


def fetch_token(
    url: str, *, client_id: str | None, client_secret: SecretStr, scope: str | None, in_body: bool, setting: str
) -> str:
    """Fetch a token.

    Args:
        url: where it is given out.
        client_id: None for a server that knows its clients by the secret alone.
        client_secret: the client's.
        scope: what it is for.
        in_body: send the credentials in the form, as Iceberg's clients do, instead of in a header.
        setting: what an error names.

    Raises:
        AccessDenied: the server refuses the credentials.
        ConfigError: the address gives out no tokens.
        Unreachable: it does not answer.
    """
    secret = client_secret.get_secret_value()
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    if in_body:
        form |= (
            {"client_id": client_id, "client_secret": secret} if client_id is not None else {"client_secret": secret}
        )
    else:
        login = f"{quote_plus(client_id or '')}:{quote_plus(secret)}".encode()
        headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"
    status, body = ask(url, server=_SERVER, headers=headers, body=urlencode(form).encode())
    if status == 429 or (status >= 500 and status != 501):
        raise Unreachable(f"{_SERVER} answers with HTTP status {status}", where=url)
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    token = document.get("access_token") if isinstance(document, dict) else None
    if status == 200 and isinstance(token, str):
        return token
    if status in (400, 401, 403):
        hint = f"check {setting}"
        raise AccessDenied(f"the OAuth2 server refuses the credential (HTTP status {status})", where=url, hint=hint)
    hint = "give the address that gives out tokens"
    raise ConfigError(f"no token is given out at this address (HTTP status {status})", where=url, hint=hint)
