"""A collector for OTLP over HTTP that stores the requests it receives."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http

Request = tuple[str, dict[str, str], bytes]


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[Request]]]:
    """Run a collector; yield its URL, and a list of the requests' paths, headers and bodies."""
    taken: list[Request] = []

    def take(request: HttpRequest) -> HttpAnswer:
        taken.append((request.path, dict(request.headers), request.body))
        return HttpAnswer(status, headers={"Location": "http://127.0.0.1:9/stolen"})

    with serve_http(take) as address:
        yield address, taken


def metrics_in(body: bytes) -> dict[str, Metric]:
    [resource] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    [scope] = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}
