"""Warnings for logins that would cross a network as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from lakefeed.config import tls
from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.connections import Connections, Registry
from lakefeed.config.decoding import Decode
from lakefeed.config.problem import Problem
from lakefeed.config.urls import is_loopback


def plain_text_logins(config: PipelineBlocks, connections: Connections) -> list[Problem]:
    """Warn of each login that crosses a network without TLS."""
    found = [*_http(config, connections), *_kafka(config), *_databases(config, connections)]
    return list(dict.fromkeys(found))


def _http(config: PipelineBlocks, connections: Connections) -> Iterator[Problem]:
    for key, url in _logins(config, connections):
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            what = "the login goes over the network as plain text, since the address begins with http://"
            yield Problem(what=what, key=key, about=url, hint="use https://", severity="warning")


def _logins(config: PipelineBlocks, connections: Connections) -> Iterator[tuple[str, str]]:
    """Each address that gets a login, and its setting."""
    for key, registry in _registries(config):
        if registry.username is not None or registry.password is not None:
            yield f"{key}.url", registry.url
    if connections.s3.endpoint and connections.s3.access_key is not None:
        yield "s3.endpoint", connections.s3.endpoint
    kinesis = connections.kinesis
    if kinesis is not None and kinesis.endpoint and kinesis.access_key is not None:
        yield "source.kinesis.endpoint", kinesis.endpoint
    for name, catalog in connections.catalogs.items():
        if catalog.type == "rest" and catalog.secrets():
            yield f"catalogs.{name}.uri", catalog.uri
            if catalog.credential is not None and catalog.oauth2_server_uri:
                yield f"catalogs.{name}.oauth2_server_uri", catalog.oauth2_server_uri
    for place, sink in config.sink_blocks:
        search = sink.elasticsearch
        if search is not None and (search.api_key is not None or search.password is not None):
            yield from ((f"{place}.elasticsearch.url", url) for url in search.urls)


def _registries(config: PipelineBlocks) -> Iterator[tuple[str, Registry]]:
    blocks: dict[str, Decode | None] = {"decode": config.decode}
    for topic, own in (config.tables.topics if config.tables is not None else {}).items():
        blocks[f"tables.topics.{topic}.decode"] = own.decode
    for place, decode in blocks.items():
        if decode is not None:
            for at, each in ((place, decode), (f"{place}.key", decode.key)):
                if each is not None and each.registry is not None:
                    yield f"{at}.{each.kind}.registry", each.registry
    for place, sink in config.sink_blocks:
        if sink.kafka is not None and sink.kafka.value.registry is not None:
            yield f"{place}.kafka.value.{sink.kafka.value.kind}.registry", sink.kafka.value.registry


def _kafka(config: PipelineBlocks) -> Iterator[Problem]:
    source = config.source.kafka
    blocks = [("source.kafka", source.bootstrap_servers, source.options)] if source is not None else []
    for place, sink in config.sink_blocks:
        if sink.kafka is not None:
            servers = sink.kafka.bootstrap_servers or (source.bootstrap_servers if source is not None else "")
            blocks.append((f"{place}.kafka", servers, sink.kafka.options))
    for place, servers, options in blocks:
        hosts = [urlsplit(f"//{each.strip().rpartition('//')[2]}").hostname for each in servers.split(",")]
        protocol = str(options.get("kafka.security.protocol", "")).strip()
        if protocol == "SASL_PLAINTEXT" and not all(is_loopback(host) for host in hosts):
            what = "the login goes over the network as plain text, since the protocol is SASL_PLAINTEXT"
            key = f"{place}.options.kafka.security.protocol"
            yield Problem(what=what, key=key, about=servers, hint="use SASL_SSL", severity="warning")


def _databases(config: PipelineBlocks, connections: Connections) -> Iterator[Problem]:
    for key, url in _database_logins(config, connections):
        parts = urlsplit(url.removeprefix("jdbc:"))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not is_loopback(parts.hostname) and not tls.is_required(parts.scheme, options):
            what = "the login may go over the network as plain text, since the URL does not require TLS"
            mode = "sslmode" if parts.scheme == "postgresql" else "sslMode"
            hint = f"add the parameter {mode}=verify-full to the URL"
            yield Problem(what=what, key=key, about=url, hint=hint, severity="warning")


def _database_logins(config: PipelineBlocks, connections: Connections) -> Iterator[tuple[str, str]]:
    for name, catalog in connections.catalogs.items():
        if catalog.uri.startswith("jdbc:postgresql:") and catalog.password is not None:
            yield f"catalogs.{name}.uri", catalog.uri
    for place, sink in config.sink_blocks:
        if sink.jdbc is not None:
            yield f"{place}.jdbc.url", sink.jdbc.url
