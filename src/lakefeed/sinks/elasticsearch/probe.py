"""What can be said of a search server before a run, without Spark: whether one may log in, and the index can serve."""

from __future__ import annotations

from collections.abc import Iterator

from lakefeed.config.elasticsearch import ElasticsearchSinkConfig
from lakefeed.config.problem import Problem
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, Unreachable
from lakefeed.sinks.elasticsearch.layout import IndexLayout
from lakefeed.sinks.elasticsearch.server import Server

OLDEST = 7
"""Elasticsearch before it has types of documents, and no compare-and-set by sequence number."""


def problems(sink: ElasticsearchSinkConfig, *, key: str) -> Iterator[Problem]:
    """Everything that would stop a run.

    Args:
        sink: the block.
        key: where it is in the pipeline file.
    """
    server = Server(sink)
    try:
        require_version(server, where=", ".join(sink.urls))
        IndexLayout(server, sink).described()
    except AccessDenied as error:
        yield Problem.of(error, key=f"{key}.{'api_key' if sink.api_key is not None else 'username'}")
    except Unreachable as error:
        yield Problem.of(error, key=f"{key}.url")
    except LakefeedError as error:
        yield Problem.of(error, key=f"{key}.{'index' if sink.index in (error.where or '') else 'url'}")


def require_version(server: Server, *, where: str) -> None:
    """Looks whether the server has what a feed needs.

    Raises:
        ConfigError: it is another kind of server, or too old.
    """
    version = server.ask("GET", "/").document.get("version")
    number = str(version.get("number", "")) if isinstance(version, dict) else ""
    if not number[:1].isdigit():
        hint = "give the address of the server's REST API, usually at port 9200"
        raise ConfigError("this address answers, but not as Elasticsearch or OpenSearch does", where=where, hint=hint)
    is_opensearch = isinstance(version, dict) and version.get("distribution") == "opensearch"
    if not is_opensearch and int(number.partition(".")[0]) < OLDEST:
        raise ConfigError(f"the server is Elasticsearch {number}", where=where, hint="it has to be 7 or newer")
