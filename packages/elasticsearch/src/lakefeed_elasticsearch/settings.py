"""The block ``sink.elasticsearch``; OpenSearch has the same bulk API as Elasticsearch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from lakefeed.config.addresses import DatasetName, Place, PlainTextLogin, over_http
from lakefeed.config.base import ConfigProblem, checked
from lakefeed.config.connections import refuse_credentials
from lakefeed.config.keyed import Deletes, keyed_problems
from lakefeed.config.sinks import Capabilities, Refusal, SinkConfig, SinkFiles
from lakefeed.config.values import Count

INDEX = re.compile(r"[^-_+.\\/*?\"<>|,#:\sA-Z{}][^\\/*?\"<>|,#:\sA-Z{}]{0,199}")
"""Matches the index names that the servers accept."""


def _require_addresses(url: str | list[str]) -> None:
    for address in [url] if isinstance(url, str) else url:
        refuse_credentials(address, instead="username and password, or api_key")
        try:
            parts = urlsplit(address)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or parts.query or parts.fragment:
            raise ValueError(f"'{address}' is not an address of a server: write http://host:9200 or https://host")


def _require_index_name(index: str) -> None:
    if not INDEX.fullmatch(index):
        letters = "use small letters and digits, and - _ . after the first"
        raise ValueError(f"'{index}' cannot name an index: {letters}")
    if index.startswith("lakefeed_"):
        raise ValueError("choose another name: names that start with lakefeed_ belong to the ledger")


class ElasticsearchSinkConfig(SinkConfig):
    """An index of Elasticsearch 7 to 9 or of OpenSearch, created from the rows' schema if it is missing."""

    guarantee: ClassVar[str] = "exactly-once"
    other_modes: ClassVar[str] = (
        "update requires mode: upsert and keys; complete does not work: no request replaces all documents at once"
    )
    definition: ClassVar[str] = "lakefeed_elasticsearch.index:ElasticsearchDefinition"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=Refusal(
            "a feed into a search server cannot be rewound: older changes would overwrite newer documents",
            "to read the source again, name another index and another checkpoint location",
        ),
        lag=None,
        no_checkpoint=None,
    )
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="a server")
    reads_stored_rows: ClassVar[bool] = False

    url: Annotated[str | list[str], checked(_require_addresses)] = Field(
        min_length=1, examples=["${ELASTICSEARCH_URL}"]
    )
    """Address of a node, or of several: http://host:9200 or https://…; without credentials."""
    index: Annotated[str, checked(_require_index_name)] = Field(examples=["orders"])
    """The index, or an alias of one. The ledger is in another index, lakefeed_feeds."""
    username: str | None = Field(None, min_length=1, description="The user who logs in.")
    password: SecretStr | None = Field(None, description="The user's password; give it as ${NAME}.")
    api_key: SecretStr | None = None
    """API key, instead of user and password, encoded as Elasticsearch returns it; write it as ${NAME}."""
    ca_file: Path | None = None
    """File of the CA certificates (PEM) that sign the server's certificate, such as Elasticsearch's http_ca.crt.
    Default: the CAs that Java and Python trust."""
    mode: Literal["append", "upsert"] = "append"
    """append: one document per record. upsert: the newest row per key."""
    keys: list[str] = Field(default_factory=list)
    """With upsert: the columns that identify a document and give it its _id."""
    delete: Deletes = Field(default_factory=Deletes, description="With upsert: which records delete their key's row.")
    on_delete: Literal["remove", "mark"] = "remove"
    """With upsert: remove the document, or keep it with lakefeed_deleted = true."""
    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Settings of an index that lakefeed creates, such as number_of_shards."""
    bulk_documents: Count = Field(5_000, description="The most documents in one request.")
    bulk_bytes: Count = 5_000_000
    """The most bytes of one request; a larger document is sent alone."""

    def _contradictions(self) -> Iterator[ConfigProblem]:
        yield from keyed_problems(self)
        if (self.username is None) != (self.password is None):
            yield ConfigProblem("username and password belong together", key="username", hint="give both or none")
        if self.api_key is not None and self.username is not None:
            yield ConfigProblem("api_key and username are two logins", key="api_key", hint="remove one of the two")

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(each.rstrip("/") for each in ([self.url] if isinstance(self.url, str) else self.url))

    @property
    def keyed(self) -> ElasticsearchSinkConfig | None:
        return self if self.mode == "upsert" else None

    @property
    def record_positions(self) -> Literal["unused", "required"]:
        return "required" if self.mode == "append" else "unused"

    def places(self, *, brokers: str) -> Iterator[Place]:
        urls = [urlsplit(url) for url in self.urls]
        servers = frozenset(f"{url.hostname}:{url.port or {'http': 80}.get(url.scheme, 443)}" for url in urls)
        yield Place("index", "index", self.index, servers=servers)

    def plain_text_logins(self, *, brokers: str) -> Iterator[PlainTextLogin]:
        return over_http("url", self.urls if self.api_key is not None or self.password is not None else ())

    @property
    def target(self) -> str:
        return self.index

    def dataset(self, *, feed: str, brokers: str) -> DatasetName:
        first = urlsplit(self.urls[0])
        return DatasetName(f"elasticsearch://{first.hostname}:{first.port or 9200}", self.index)

    @property
    def table(self) -> str:
        return self.index

    @property
    def order_by(self) -> list[str]:
        """Always empty: the batch decides which version of a document is newer, and not a column of the row."""
        return []

    @property
    def where(self) -> str:
        return f"index {self.index} at {', '.join(self.urls)}"
