"""The schema registry as the control plane needs it: look up, register, list. Records are the JVM decoder's."""

from __future__ import annotations

import difflib
import http.client
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.clients.registry import Referred, Refused, RegistryApi, RegistrySchema, Version
from lakefeed.errors import AccessDenied, ConfigError, ResourceMissing, Unreachable, WorldError
from lakefeed.records.decode.references import inlined
from lakefeed.records.spec import registry_address

if TYPE_CHECKING:
    from pydantic import SecretStr


DEEPEST_REFERENCE = 32
MOST_REFERENCES = 1_000


@dataclass(frozen=True, kw_only=True)
class ReferredSchema:
    """A schema that another one refers to.

    Attributes:
        name: what the other calls it: the path of an import, or what stands in ``$ref``.
        text: the schema.
        subject: where it is registered.
        version: which version of the subject.
    """

    name: str
    text: str
    subject: str
    version: int


@dataclass(frozen=True, kw_only=True)
class SchemaText:
    """A schema as it is registered.

    Attributes:
        text: the schema; Avro's with the types of other subjects that it refers to put in, so that it stands alone.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references: all that it refers to, each after those that it needs itself.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[ReferredSchema, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RegisteredSchema(SchemaText):
    """One version of a subject.

    Attributes:
        subject: such as ``trips-value``.
        version: 1, 2, …
        schema_id: the id that records carry.
    """

    subject: str
    version: int
    schema_id: int


class SchemaRegistry:
    """A registry with Confluent's REST API; a call takes a few seconds at most.

    Args:
        url: base address, without credentials; Apicurio's ends in ``/apis/ccompat/v7``.
        username: for HTTP basic authentication; None for none.
        password: belongs to the user name.

    Every method raises Unreachable if the registry does not answer, and AccessDenied if it refuses the
    credentials.

    Raises:
        ConfigError: the address is not usable, or the user name or the password is missing.
    """

    def __init__(self, url: str, *, username: str | None = None, password: SecretStr | None = None) -> None:
        self.url = registry_address(url)
        if (username is None) != (password is None):
            raise ConfigError("A registry's user name and password belong together", where=self.url)
        self._client = RegistryApi(self.url, username=username, password=password)

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject.

        Raises:
            ResourceMissing: there is no such subject; the hint names those that are spelt alike.
        """
        with self._failures(f"subject {subject}"):
            return self._registered(self._client.get_latest_version(subject))

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """All versions of a subject that are not deleted, oldest first.

        Raises:
            ResourceMissing: there is no such subject; the hint names those that are spelt alike.
        """
        with self._failures(f"subject {subject}"):
            numbers = sorted(self._client.get_versions(subject))
            return [self._registered(self._client.get_version(subject, each)) for each in numbers]

    def schema(self, schema_id: int) -> SchemaText:
        """The schema with this id.

        Raises:
            ResourceMissing: there is no such id.
        """
        with self._failures(f"schema id {schema_id}"):
            return self._schema(self._client.get_schema(schema_id))

    def by_id(self, schema_id: int) -> str:
        """The text of the schema with this id, as ``SchemaText.text`` is.

        Raises:
            ResourceMissing: there is no such id.
        """
        return self.schema(schema_id).text

    def subjects_of(self, schema_id: int) -> set[str]:
        """The subjects that the schema with this id is registered under, deleted versions apart.

        Raises:
            ResourceMissing: there is no such id.
        """
        with self._failures(f"schema id {schema_id}"):
            return {str(each.subject) for each in self._client.get_schema_versions(schema_id)}

    def register(
        self, subject: str, text: str, *, kind: str = "AVRO", references: Sequence[ReferredSchema] = ()
    ) -> int:
        """Registers a schema as the next version of ``subject``, if it is not there yet; returns its id.

        Raises:
            ConfigError: the registry says that the schema is not valid, or not compatible with those before.
        """
        referred = tuple(Referred(each.name, each.subject, each.version) for each in references)
        with self._failures(f"subject {subject}"):
            return self._client.register_schema(subject, RegistrySchema(text, kind, referred))

    def subjects(self) -> list[str]:
        """The names of all subjects, sorted."""
        with self._failures("subjects"):
            return sorted(self._client.get_subjects())

    def _registered(self, found: Version) -> RegisteredSchema:
        schema = self._schema(found.schema)
        return RegisteredSchema(
            subject=found.subject,
            version=found.version,
            schema_id=found.schema_id,
            text=schema.text,
            kind=schema.kind,
            references=schema.references,
        )

    def _schema(self, found: RegistrySchema) -> SchemaText:
        kind, text = found.schema_type, found.schema_str
        references = tuple(self._referred(found, set(), 0))
        if kind == "AVRO" and references:
            text = inlined(text, [each.text for each in references])
        return SchemaText(text=text, kind=kind, references=references)

    def _referred(self, schema: RegistrySchema, seen: set[tuple[str, int]], depth: int) -> Iterator[ReferredSchema]:
        """All schemas that ``schema`` refers to, each after those that it needs itself; bounded as in Java.

        Raises:
            ConfigError: they are too many.
        """
        if depth > DEEPEST_REFERENCE or len(seen) > MOST_REFERENCES:
            raise ConfigError(
                f"the schema refers to more than {MOST_REFERENCES:,} others, or through more than {DEEPEST_REFERENCE}",
                where=self.url,
            )
        for reference in schema.references:
            if (reference.subject, reference.version) not in seen:
                seen.add((reference.subject, reference.version))
                referred = self._client.get_version(reference.subject, reference.version).schema
                yield from self._referred(referred, seen, depth + 1)
                yield ReferredSchema(
                    name=reference.name,
                    text=referred.schema_str,
                    subject=reference.subject,
                    version=reference.version,
                )

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        where = f"{what} of {self.url}"
        try:
            yield
        except Refused as error:
            raise self._translated(error, what, where) from None
        except (ValueError, KeyError, TypeError, RecursionError):
            # A success whose body is no JSON, or other JSON: a web server, but not a registry.
            raise _not_a_registry(self.url, 200) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(
                f"The schema registry does not answer: {why}",
                where=self.url,
                hint="is it running, and is the address right? For the local stack: lakefeed local status",
            ) from None

    def _translated(self, error: Refused, what: str, where: str) -> Exception:
        status = error.status
        if status in {401, 403}:
            return AccessDenied(
                f"The schema registry refuses the credentials (HTTP status {status})",
                where=self.url,
                hint="check the user name and the password, and what that user may do",
            )
        if status == 429 or status >= 500:
            return Unreachable(f"The schema registry answers with HTTP status {status}", where=where)
        if error.code is None:
            return _not_a_registry(self.url, status)
        if status == 404:
            return ResourceMissing(f"The schema registry has no {what}", where=self.url, hint=self._nearest(what))
        if status == 409:
            return ConfigError(
                f"The schema is not compatible with the subject's earlier versions: {error.message}",
                where=where,
                hint="give new fields a default, or register it under another subject",
            )
        if status == 422:
            return ConfigError(f"The registry refuses the schema: {error.message}", where=where)
        return WorldError(f"The schema registry answers with HTTP status {status}: {error.message}", where=where)

    def _nearest(self, what: str) -> str | None:
        kind, _, name = what.partition(" ")
        if kind != "subject":
            return None
        subjects = self.subjects()
        near = difflib.get_close_matches(name, subjects, n=3, cutoff=0.5)
        if near:
            return f"did you mean {', '.join(near)}?"
        return "it has no subjects yet; register a schema first" if not subjects else None


def _not_a_registry(url: str, status: int) -> ConfigError:
    return ConfigError(
        f"This address answers, but not as a schema registry does (HTTP status {status})",
        where=url,
        hint="give the base address of Confluent's API; Apicurio's ends in /apis/ccompat/v7",
    )
