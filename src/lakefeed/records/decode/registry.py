"""A client of schema registries, for commands and a feed's start; the JVM's decoder of records has its own client.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import difflib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlencode

from lakefeed.clients.http import Response, exchange, fetch_token
from lakefeed.config.trust import explain
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.records.schema.parse import full_name, parse_any
from lakefeed.records.spec import registry_address

if TYPE_CHECKING:
    from pydantic import SecretStr

    from lakefeed.config.connections import GlueRegistry, Registry

T = TypeVar("T")

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}
"""The kind of a registered schema, by the decode block of a pipeline file."""

DEEPEST_REFERENCE = 32
MOST_REFERENCES = 1_000
TIMEOUT_SECONDS = 5
_PAUSE_SECONDS = 0.2
_NAMED = ("record", "error", "enum", "fixed")
_MOST_BYTES = 16 << 20
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"


@dataclass(frozen=True, kw_only=True)
class ReferredSchema:
    name: str
    """The path of an import, or the value of ``$ref``."""
    text: str
    subject: str
    version: int


@dataclass(frozen=True, kw_only=True)
class SchemaText:
    """A registered schema.

    Attributes:
        text: the schema; an Avro schema also contains the types of the schemas that it refers to.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references: all schemas that the schema refers to, directly or indirectly, dependencies first.
        extra: the registry's ``ruleSet`` and ``metadata`` of the schema.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[ReferredSchema, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, kw_only=True)
class RegisteredSchema(SchemaText):
    """One version of a subject, such as ``trips-value``."""

    subject: str
    version: int
    schema_id: int


class _Refused(Exception):
    """The registry has answered with an error, the ``Response`` in ``args``."""


class NotARegistry(ConfigError):
    """The server that answers is no registry: the address is wrong, or a load balancer answers during a restart."""

    passes = True


class SchemaRegistry:
    """A client of a registry with Confluent's REST API; a call takes at most a few seconds.

    All methods raise Unreachable if the registry does not answer, AccessDenied if it refuses the credentials, and
    ResourceMissing, with similar subjects in the hint, if it does not have the subject or id.

    Args:
        url: the base address, or several with commas, without credentials; Apicurio's ends in ``/apis/ccompat/v7``.
        username: for HTTP basic authentication, with the password.
        token: returns a bearer token; called again if the registry refuses the token.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: SecretStr | None = None,
        token: Callable[[], str] | None = None,
    ) -> None:
        self.url = registry_address(url)
        self._glue: GlueRegistry | None = None
        self._token = token
        if (username is None) != (password is None):
            what = "The schema registry has a user name without a password, or a password without a user name"
            raise ConfigError(what, where=self.url, hint="give both or none")
        self._headers = {"accept": _ACCEPTED, "content-type": "application/vnd.schemaregistry.v1+json"}
        if username is not None and password is not None:
            login = f"{username}:{password.get_secret_value()}".encode()
            self._headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"

    @classmethod
    def of(cls, settings: Registry) -> Self:
        token = _token_of(settings)
        client = cls(settings.url, username=settings.username, password=settings.password, token=token)
        client._glue = settings.glue
        return client

    def latest(self, subject: str, *, block: str | None = None, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, by default the newest; refuse a schema that ``block`` does not decode."""
        with self._failures(f"subject {subject}"):
            schema = self._version(subject, str(version or "latest"))
        if block is not None and schema.kind != KINDS[block]:
            other = next((name for name, kind in KINDS.items() if kind == schema.kind), None)
            what = f"version {schema.version} of subject {subject} is of kind {schema.kind}, not {KINDS[block]}"
            hint = f"use the block {other} instead of {block} in decode" if other else None
            raise ConfigError(what, where=self.url, hint=hint)
        return schema

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return the versions of a subject, oldest first. No method returns deleted versions."""
        with self._failures(f"subject {subject}"):
            return [self._version(subject, str(number)) for number in self.version_numbers(subject)]

    def version_numbers(self, subject: str) -> list[int]:
        with self._failures(f"subject {subject}"):
            return sorted(int(number) for number in self._ask(list, "GET", "subjects", subject, "versions"))

    def latest_id(self, subject: str) -> int:
        """Return the id of a subject's newest version without reading its schema, which may be unusable."""
        with self._failures(f"subject {subject}"):
            return int(self._ask(dict, "GET", "subjects", subject, "versions", "latest")["id"])

    def schema(self, schema_id: int, subject: str | None = None) -> SchemaText:
        """Return the schema with this id; ``subject`` selects the registry's context."""
        query = {"subject": subject} if subject else None
        with self._failures(f"schema id {schema_id}"):
            answer = self._ask(dict, "GET", "schemas", "ids", str(schema_id), query=query)
            return SchemaText(**self._contents(answer, subject))

    def subjects_of(self, schema_id: int, subject: str | None = None) -> set[str]:
        """Return the subjects that have the schema with this id; ``subject`` selects the registry's context."""
        if self._glue is not None and subject is not None:
            return {subject}
        with self._failures(f"schema id {schema_id}"):
            query = {"subject": subject} if subject and _context(subject) else None
            versions = self._ask(list, "GET", "schemas", "ids", str(schema_id), "versions", query=query)
            return {str(_checked(dict, version)["subject"]) for version in versions}

    def found_at(
        self,
        what: str,
        *path: str,
        pick: Callable[[Any], T | None],
        query: Mapping[str, str] | None = None,
        hint: str = "register the schema there",
    ) -> T:
        """Request a path; return the result of ``pick`` for the answer. If it is None, ``what`` is missing."""
        with self._failures(what):
            found = pick(self._ask(object, "GET", *path, query=query))
        if found is None:
            raise ResourceMissing(f"The schema registry has no {what}", where=self.url, hint=hint)
        return found

    def register(
        self, subject: str, text: str, *, kind: str = "AVRO", references: Sequence[ReferredSchema] = ()
    ) -> int:
        """Register a schema as ``subject``'s next version, unless it is a version already; return the schema's id."""
        document: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            document["schemaType"] = kind
        if references:
            document["references"] = [
                {"name": schema.name, "subject": schema.subject, "version": schema.version} for schema in references
            ]
        with self._failures(f"subject {subject}"):
            return int(self._ask(dict, "POST", "subjects", subject, "versions", document=document)["id"])

    def subjects(self) -> list[str]:
        with self._failures("subjects"):
            return sorted(str(subject) for subject in self._ask(list, "GET", "subjects"))

    def _version(self, subject: str, version: str) -> RegisteredSchema:
        answer = self._ask(dict, "GET", "subjects", subject, "versions", version)
        return RegisteredSchema(
            subject=str(answer["subject"]),
            version=int(answer["version"]),
            schema_id=int(answer["id"]),
            **self._contents(answer, subject),
        )

    def _contents(self, answer: Mapping[str, Any], subject: str | None) -> dict[str, Any]:
        text, kind = str(answer["schema"]), str(answer.get("schemaType") or "AVRO")
        references = tuple(self._referred(answer, set(), 0, _context(subject or "")))
        if kind == "AVRO" and references:
            text = inline(text, [schema.text for schema in references])
        extra = {name: answer[name] for name in ("ruleSet", "metadata") if answer.get(name)}
        return {"text": text, "kind": kind, "references": references, "extra": extra}

    def _referred(
        self, answer: Mapping[str, Any], visited: set[tuple[str, int]], depth: int, context: str
    ) -> Iterator[ReferredSchema]:
        """Yield all schemas that a schema refers to, dependencies first; the limits are those of the JVM's decoder."""
        if depth > DEEPEST_REFERENCE or len(visited) > MOST_REFERENCES:
            raise ConfigError(
                f"the schema refers to more than {MOST_REFERENCES:,} other schemas, or its references form a chain of "
                f"more than {DEEPEST_REFERENCE} schemas",
                where=self.url,
                hint="register a schema with fewer references",
            )
        for reference in answer.get("references") or ():
            name, subject, version = str(reference["name"]), str(reference["subject"]), int(reference["version"])
            subject = subject if _context(subject) else context + subject
            if (subject, version) not in visited:
                visited.add((subject, version))
                with self._failures(f"version {version} of subject {subject}, which the schema refers to"):
                    referred = self._ask(dict, "GET", "subjects", subject, "versions", str(version))
                yield from self._referred(referred, visited, depth + 1, context)
                yield ReferredSchema(name=name, text=str(referred["schema"]), subject=subject, version=version)

    def _ask(
        self,
        kind: type[T],
        method: str,
        *path: str,
        document: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> T:
        """Return the JSON of the registry's answer. If no address answers, wait a moment and try all again."""
        if self._glue is not None:
            from lakefeed.records.decode import glue

            return _usable(kind, glue.answer(self._glue, self.url, method, path, query, seconds=TIMEOUT_SECONDS))
        if "authorization" not in self._headers:
            self._log_in()
        tail = "/".join(["", *(quote(part, safe="") for part in path)]) + (f"?{urlencode(query)}" if query else "")
        body = None if document is None else json.dumps(document).encode()
        send = partial(exchange, method, seconds=TIMEOUT_SECONDS, headers=self._headers, body=body)
        addresses = self.url.split(",")
        for attempt in range(2 * len(addresses)):
            at, is_last = addresses[attempt % len(addresses)] + tail, attempt == 2 * len(addresses) - 1
            if attempt == len(addresses):
                time.sleep(_PAUSE_SECONDS)
            with nullcontext() if is_last else suppress(OSError, http.client.HTTPException):
                answer = send(at, most_bytes=_MOST_BYTES)
                if answer.status != 429 and answer.status < 500:
                    break
        if answer.status == 401 and self._log_in():  # The token has expired.
            answer = send(at, most_bytes=_MOST_BYTES)
        return _usable(kind, answer)

    def _log_in(self) -> bool:
        """Request a new token; return False if the login uses no tokens."""
        if self._token is not None:
            self._headers["authorization"] = f"Bearer {self._token()}"
        return self._token is not None

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        try:
            yield
        except _Refused as refused:
            raise self._error_of(refused.args[0], what) from None
        except (ValueError, KeyError, TypeError, RecursionError):
            # A web server that is not a registry has answered with status 200 and another body than a registry's JSON.
            raise _not_a_registry(self.url, 200) from None
        except ssl.SSLError as error:
            raise explain(error, server="the schema registry", where=self.url) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            hint = "check that it runs at this address; for the local stack: lakefeed local status"
            raise Unreachable(f"The schema registry does not answer: {why}", where=self.url, hint=hint) from None

    def _error_of(self, answer: Response, what: str) -> LakefeedError:
        status, where = answer.status, f"{what} of {self.url}"
        if status in {401, 403}:
            return AccessDenied(
                f"The schema registry refuses the credentials (HTTP status {status})",
                where=self.url,
                hint="check the user name and the password, or the token, and the rights of this login",
            )
        if status == 429 or status >= 500:
            return Unreachable(
                f"The schema registry answers with HTTP status {status}",
                where=where,
                hint="try again later, and read the registry's log if the status remains",
            )
        try:
            error = _checked(dict, json.loads(answer.body))
            int(error["error_code"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return _not_a_registry(self.url, status)
        if status == 404:
            return ResourceMissing(f"The schema registry has no {what}", where=self.url, hint=self._nearest(what))
        if status == 409:
            return ConfigError(
                f"The schema is not compatible with the subject's earlier versions: {error.get('message')}",
                where=where,
                hint="give new fields a default, or register it under another subject",
            )
        if status == 422:
            what, hint = f"The registry refuses the schema: {error.get('message')}", "correct the schema"
            return ConfigError(what, where=where, hint=hint)
        what = f"The schema registry answers with HTTP status {status}: {error.get('message')}"
        return Unreachable(what, where=where, hint="read the registry's log")

    def _nearest(self, what: str) -> str | None:
        kind, _, name = what.partition(" ")
        if self._glue is not None:
            return f"create the schema in the registry {self._glue.name}, or set subject to another schema's name"
        if kind != "subject":
            return None
        subjects = self.subjects()
        if near := difflib.get_close_matches(name, subjects, n=3, cutoff=0.5):
            return f"did you mean {', '.join(near)}?"
        return "it has no subjects yet; register a schema first" if not subjects else None


def _context(subject: str) -> str:
    """Return the context with which a subject's name begins, such as ``:.staging:``; empty for the default context."""
    return subject[: subject.find(":", 1) + 1] if subject.startswith(":.") else ""


def _token_of(settings: Registry) -> Callable[[], str] | None:
    if settings.token is not None:
        return settings.token.get_secret_value
    if settings.token_url is None or settings.client_secret is None:
        return None
    return partial(
        fetch_token,
        settings.token_url,
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        scope=settings.scope,
        in_body=False,
        setting="the registry's client_id, client_secret and scope",
    )


def _not_a_registry(url: str, status: int) -> NotARegistry:
    if 300 <= status < 400:
        what = f"This address redirects to another one (HTTP status {status}), to which lakefeed sends no login"
        return NotARegistry(what, where=url, hint="write the other address, which curl -sI shows in the line Location")
    what = f"This is not the address of a schema registry: another server answers (HTTP status {status})"
    hint = "give the base address of Confluent's API; Apicurio's ends in /apis/ccompat/v7"
    return NotARegistry(what, where=url, hint=hint)


def _usable(kind: type[T], answer: Response) -> T:
    if answer.status != 200:
        raise _Refused(answer)
    return _checked(kind, json.loads(answer.body))


def _checked(kind: type[T], answer: Any) -> T:
    if not isinstance(answer, kind):
        raise ValueError(f"not a {kind.__name__}")
    return answer


def inline(text: str, referred: Sequence[str]) -> str:
    """Return an Avro schema with the types of ``referred`` schemas (dependencies first), each at its first use."""
    definitions: dict[str, Any] = {}
    try:
        for schema in referred:
            _collect(json.loads(schema), "", definitions)
        return json.dumps(_with_types(json.loads(text), "", definitions, set()))
    except RecursionError:
        what = "the Avro schema, or a schema that it refers to, is nested too deeply"
        raise ConfigError(
            what, hint="replace the nested levels by a recursive record, which becomes one column with JSON"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        # Parse the schemas one after another, so that a malformed schema raises an error with the reason.
        for schema in (*referred, text):
            parse_any(schema, is_part=True)
        what = "the Avro schema does not fit the schemas that it refers to"
        raise ConfigError(what, hint="compare its type names with the names in the referenced schemas") from None


def _names(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    full = full_name(schema["name"], schema.get("namespace", namespace))
    return full, full.rpartition(".")[0]


def _collect(schema: Any, namespace: str, definitions: dict[str, Any]) -> None:
    """Add a schema's named types to ``definitions`` by full name, each with an explicit namespace."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, definitions)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in _NAMED:
            full, namespace = _names(schema, namespace)
            definitions[full] = {**schema, "name": full.rpartition(".")[2], "namespace": namespace}
        for field in schema.get("fields", ()):
            _collect(field["type"], namespace, definitions)
        for part in ("items", "values"):
            _collect(schema.get(part), namespace, definitions)
        if not isinstance(kind, str):
            _collect(kind, namespace, definitions)


def _with_types(schema: Any, namespace: str, definitions: dict[str, Any], known: set[str]) -> Any:
    """Replace the first use of each type by its definition; ``known`` has the names that are defined already."""
    if isinstance(schema, str):
        full = full_name(schema, namespace)
        full = full if full in definitions or full in known else schema
        if full in known:
            return full
        return _with_types(definitions[full], "", definitions, known) if full in definitions else schema
    if isinstance(schema, list):
        return [_with_types(branch, namespace, definitions, known) for branch in schema]
    result = dict(schema)
    if result["type"] in _NAMED:
        full, namespace = _names(result, namespace)
        known.add(full)
    if "fields" in result:
        result["fields"] = [
            {**field, "type": _with_types(field["type"], namespace, definitions, known)} for field in result["fields"]
        ]
    parts = ("items", "values") if isinstance(result["type"], str) else ("items", "values", "type")
    for part in parts:
        if part in result:
            result[part] = _with_types(result[part], namespace, definitions, known)
    return result
