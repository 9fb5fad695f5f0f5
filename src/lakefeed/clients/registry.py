"""Confluent's REST API of a schema registry, as far as the control plane asks for it; each call ends in time.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lakefeed.clients.http import exchange

if TYPE_CHECKING:
    from pydantic import SecretStr

TIMEOUT_SECONDS = 5
RETRIES = 1
PAUSE_SECONDS = 0.2
MOST_BYTES = 16 << 20
ACCEPTED = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"


class Refused(Exception):
    """The registry answered with an error.

    Attributes:
        status: of HTTP.
        code: of the API; None if what answers is no registry.
        message: of the API.
    """

    def __init__(self, status: int, code: int | None, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(f"HTTP status {status}: {message}")


@dataclass(frozen=True)
class Referred:
    """One reference of a schema."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegistrySchema:
    """A schema as the API gives it."""

    schema_str: str
    schema_type: str = "AVRO"
    references: tuple[Referred, ...] = ()


@dataclass(frozen=True)
class Version:
    """A schema under a subject; without the schema where the API does not give it."""

    subject: str
    version: int
    schema_id: int = 0
    schema: RegistrySchema = RegistrySchema("")


class RegistryApi:
    """A registry's calls.

    Args:
        url: base address.
        username: for HTTP basic authentication; None for none.
        password: belongs to the user name.

    Every call raises Refused for an error that the registry reports, ValueError, KeyError or TypeError if the answer is
    none of a registry, and OSError or http.client.HTTPException if there is no whole answer in time.
    """

    def __init__(self, url: str, *, username: str | None, password: SecretStr | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"accept": ACCEPTED, "content-type": "application/vnd.schemaregistry.v1+json"}
        if username is not None and password is not None:
            login = f"{username}:{password.get_secret_value()}".encode()
            self._headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"

    def get_latest_version(self, subject: str) -> Version:
        """The newest version of a subject."""
        return _version(self._ask("GET", "subjects", subject, "versions", "latest"))

    def get_version(self, subject: str, version: int) -> Version:
        """One version of a subject."""
        return _version(self._ask("GET", "subjects", subject, "versions", str(version)))

    def get_versions(self, subject: str) -> list[int]:
        """The versions of a subject."""
        return [int(each) for each in _list(self._ask("GET", "subjects", subject, "versions"))]

    def get_schema(self, schema_id: int) -> RegistrySchema:
        """The schema with this id."""
        return _schema(self._ask("GET", "schemas", "ids", str(schema_id)))

    def get_schema_versions(self, schema_id: int) -> list[Version]:
        """Where the schema with this id is registered."""
        found = _list(self._ask("GET", "schemas", "ids", str(schema_id), "versions"))
        return [Version(str(_object(each)["subject"]), int(each["version"])) for each in found]

    def get_subjects(self) -> list[str]:
        """The names of all subjects."""
        return [str(each) for each in _list(self._ask("GET", "subjects"))]

    def register_schema(self, subject: str, schema: RegistrySchema) -> int:
        """Registers a schema; returns its id."""
        document: dict[str, Any] = {"schema": schema.schema_str}
        if schema.schema_type != "AVRO":
            document["schemaType"] = schema.schema_type
        if schema.references:
            document["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
            ]
        answer = _object(self._ask("POST", "subjects", subject, "versions", document=document))
        return int(answer["id"])

    def _ask(self, method: str, *path: str, document: Mapping[str, Any] | None = None) -> Any:
        url = "/".join([self._url, *(quote(each, safe="") for each in path)])
        body = None if document is None else json.dumps(document).encode()
        for left in range(RETRIES, -1, -1):
            try:
                answer = exchange(
                    method, url, seconds=TIMEOUT_SECONDS, headers=self._headers, body=body, most_bytes=MOST_BYTES
                )
            except (OSError, http.client.HTTPException):
                if not left:
                    raise
            else:
                if not left or not (answer.status == 429 or answer.status >= 500):
                    break
            time.sleep(PAUSE_SECONDS)
        if answer.status == 200:
            return json.loads(answer.body)
        raise _refused(answer.status, answer.body)


def _refused(status: int, body: bytes) -> Refused:
    try:
        error = _object(json.loads(body))
        return Refused(status, int(error["error_code"]), str(error.get("message")))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Refused(status, None, "")


def _version(answer: Any) -> Version:
    found = _object(answer)
    return Version(str(found["subject"]), int(found["version"]), int(found["id"]), _schema(found))


def _schema(answer: Any) -> RegistrySchema:
    found = _object(answer)
    references = tuple(
        Referred(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in found.get("references") or ()
    )
    return RegistrySchema(str(found["schema"]), str(found.get("schemaType") or "AVRO"), references)


def _object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise ValueError("not an object")
    return answer


def _list(answer: Any) -> list[Any]:
    if not isinstance(answer, list):
        raise ValueError("not a list")
    return answer
