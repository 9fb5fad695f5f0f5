"""Answers the requests of ``SchemaRegistry`` from AWS Glue's schema registry, as ``GlueClient.java`` does in the JVM.

Glue's schemas are the subjects, and the number of a schema's version is the schema id.
https://docs.aws.amazon.com/glue/latest/webapi/API_GetSchemaVersion.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakefeed.clients.http import Response, exchange
from lakefeed.clients.s3 import keys_of_the_chain
from lakefeed.config.connections import GlueRegistry
from lakefeed.errors import ConfigError, MissingExtra

_PURPOSE = "asking AWS Glue's schema registry"
_LATEST: dict[str, Any] = {"LatestVersion": True}


def answer(
    glue: GlueRegistry, url: str, method: str, path: Sequence[str], query: Mapping[str, str] | None, *, seconds: float
) -> Response:
    """Return the answer that a registry with Confluent's API would give.

    Raises:
        ConfigError: Glue cannot answer the request, such as the registration of a schema.
        MissingExtra: botocore, which signs requests, is missing.
        AccessDenied: AWS's default chain has no keys.
    """
    subject = (query or {}).get("subject", "")
    number: dict[str, Any] = _LATEST
    match method, *path:
        case "GET", "subjects", subject, "versions", version:
            number = _LATEST if version == "latest" else {"VersionNumber": int(version)}
        case "GET", "subjects", subject, "versions":
            pass
        case "GET", "schemas", "ids", version if subject:
            number = {"VersionNumber": int(version)}
        case "GET", "subjects":
            return Response(200, b"[]")
        case _:
            what = f"AWS Glue's schema registry does not answer {method} /{'/'.join(path)}"
            raise ConfigError(what, where=url, hint="use a registry with Confluent's API, or AWS's tools")
    body = {"SchemaId": {"RegistryName": glue.name, "SchemaName": subject}, "SchemaVersionNumber": number}
    found = _post(glue, url, json.dumps(body).encode(), seconds)
    if found.status >= 500:
        return found
    version = json.loads(found.body)
    if found.status != 200:
        refusal = str(version.get("__type"))
        if "EntityNotFound" in refusal:
            return Response(404, b'{"error_code": 40401}')
        is_login = any(word in refusal for word in ("Access", "Signature", "Token", "Client"))
        return Response(403 if is_login else found.status, found.body)
    known = int(version["VersionNumber"])
    contents = {"schema": version["SchemaDefinition"], "schemaType": version["DataFormat"]}
    whole: Any = {"subject": subject, "version": known, "id": known, **contents}
    return Response(200, json.dumps(list(range(1, known + 1)) if path[-1] == "versions" else whole).encode())


def _post(glue: GlueRegistry, url: str, body: bytes, seconds: float) -> Response:
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    except ImportError:
        raise MissingExtra.of("botocore", "aws", _PURPOSE) from None
    if glue.access_key is not None and glue.secret_key is not None:
        token = glue.session_token.get_secret_value() if glue.session_token else None
        keys: Any = Credentials(glue.access_key.get_secret_value(), glue.secret_key.get_secret_value(), token)
    else:
        keys = keys_of_the_chain("Glue", purpose=_PURPOSE)
    headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AWSGlue.GetSchemaVersion"}
    request = AWSRequest(method="POST", url=f"{url}/", headers=headers, data=body)
    SigV4Auth(keys, "glue", glue.region).add_auth(request)
    return exchange("POST", f"{url}/", seconds=seconds, headers=dict(request.headers.items()), body=body)
