"""Send requests about indexes and the ledger to a search server; ``io.lakefeed.elasticsearch`` sends the documents.

The requests use only the API that Elasticsearch 7 to 9 and OpenSearch share: create an index, get and put its mapping,
get and index a document with ``if_seq_no`` and ``if_primary_term``.
https://www.elastic.co/docs/api/doc/elasticsearch and https://docs.opensearch.org/latest/api-reference
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lakefeed.clients.http import exchange
from lakefeed.config import trust
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, Unreachable
from lakefeed.messages.printable import without_values
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig

TIMEOUT_SECONDS = 10
MOST_BYTES = 16 << 20
PASSING = (429, 502, 503, 504)
"""A server answers with these statuses while it is overloaded, starts or stops."""
OTHER_SERVER = "this address answers, but not as Elasticsearch or OpenSearch does"
REST_API = "give the address of the server's REST API, usually at port 9200"


@dataclass(frozen=True)
class Answer:
    """The status and the JSON object of an answer; without an object, ``document`` is empty."""

    status: int
    document: Mapping[str, Any]

    @property
    def reason(self) -> str:
        """The reason for a refusal, without values of records."""
        error = self.document.get("error")
        if isinstance(error, dict):
            return without_values(f"{error.get('type')}: {error.get('reason')}")
        return without_values(str(error or f"HTTP status {self.status}"))


class Server:
    """A cluster, reached through any of its nodes."""

    def __init__(self, sink: ElasticsearchSinkConfig) -> None:
        self._sink = sink
        self._headers = {"accept": "application/json", "content-type": "application/json"}
        if (login := authorization(sink)) is not None:
            self._headers["authorization"] = login

    def ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer of the first node that gives one; raise Unreachable if all fail and a retry may help."""
        failed: LakefeedError | None = None
        for url in self._sink.urls:
            try:
                return self._ask_node(url, method, path, document)
            except Unreachable as error:
                failed = error
        assert failed is not None  # sink.elasticsearch.url has at least one address.
        raise failed

    def _ask_node(self, url: str, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        context = trust.client_context(authority(self._sink)) if url.startswith("https:") else None
        try:
            found = exchange(
                method,
                f"{url}{path}",
                seconds=TIMEOUT_SECONDS,
                headers=self._headers,
                body=None if body is None else json.dumps(body).encode(),
                most_bytes=MOST_BYTES,
                context=context,
            )
        except ssl.SSLError as error:
            setting = "tls.ca_file, or sink.elasticsearch.ca_file"
            raise trust.explain(error, server="the search server", where=url, setting=setting) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(
                f"the search server does not answer: {why}",
                where=url,
                hint="check sink.elasticsearch.url and that the server runs",
            ) from None
        try:
            document = json.loads(found.body)
        except ValueError:
            document = None
        status, answer = found.status, Answer(found.status, document if isinstance(document, dict) else {})
        if status in PASSING:
            hint = "check the server's load and its cluster health: GET /_cluster/health"
            raise Unreachable(f"the search server is overloaded or starting: {answer.reason}", where=url, hint=hint)
        if status == 401:
            hint = "check sink.elasticsearch.username and password, or api_key"
            raise AccessDenied("the search server refuses the login", where=url, hint=hint)
        if status == 403:
            hint = "give the login the rights to create, read and write the index and lakefeed_feeds"
            raise AccessDenied(f"the search server forbids the request: {answer.reason}", where=url, hint=hint)
        if not answer.document and method != "HEAD":
            raise ConfigError(f"{OTHER_SERVER} (HTTP status {status})", where=url, hint=REST_API)
        return answer


def authorization(sink: ElasticsearchSinkConfig) -> str | None:
    """Return the value of the Authorization header; None without a login."""
    if sink.api_key is not None:
        return f"ApiKey {sink.api_key.get_secret_value()}"
    if sink.username is None or sink.password is None:
        return None
    login = f"{sink.username}:{sink.password.get_secret_value()}".encode()
    return f"Basic {base64.b64encode(login).decode()}"


def authority(sink: ElasticsearchSinkConfig) -> str | None:
    """Return the trusted CA certificates as PEM; None if the default CAs are trusted."""
    return None if sink.ca_file is None else trust.certificates_in(sink.ca_file, "sink.elasticsearch.ca_file")


def path_of(*parts: str) -> str:
    return "".join(f"/{quote(each, safe='')}" for each in parts)


def refusal(answer: Answer, *, where: str) -> ConfigError:
    hint = "change the index or the block sink.elasticsearch as the reason requires"
    return ConfigError(f"the search server refuses the request: {answer.reason}", where=where, hint=hint)
