"""The path of a feed's records as a graph: topics, decode, expect, the transform's steps, sinks and dead letters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lakefeed.config.models import PipelineConfig
from lakefeed.config.transform import Transform
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_dashboard.settings import without_texts

SECONDS = 60.0
"""A rate is the average of this many seconds."""
MOST_TOPICS = 30


@dataclass(frozen=True)
class Rates:
    """Records, rows and dead letters per second (None if unknown); ``topics`` has each topic's share of the records."""

    records: float | None = None
    rows: float | None = None
    dead_letters: float | None = None
    topics: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, monitor: FeedMonitor) -> Rates:
        """Return the rates of the last minute."""
        progress = monitor.snapshot()
        rate, since = progress.rate, progress.taken_at - SECONDS
        points = monitor.points(since=since, most=1)
        if rate is None or not points or not points[0].records:
            return cls(records=rate, rows=rate, dead_letters=rate) if rate == 0 else cls()
        point, offsets = points[0], Counter[str]()
        for batch in monitor.batches():
            if batch.finished_at >= since:
                offsets.update({span.topic: 0 for span in batch.ranges})
                for span in batch.ranges:
                    offsets[span.topic] += span.records
        each, total = rate / point.records, sum(offsets.values())
        return cls(
            records=rate,
            rows=None if point.rows is None else each * point.rows,
            dead_letters=each * point.dead_letters,
            topics={topic: count / total for topic, count in offsets.items()} if total else {},
        )


class _Graph:
    """The nodes and edges of the document."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[list[str]] = []

    def add(
        self, id_: str, label: str, kind: str, *, after: Iterable[str] = (), rate: float | None = None, detail: str = ""
    ) -> str:
        """Add a node, and edges to it from the nodes of ``after``; return the new node's id."""
        shown = None if rate is None else round(rate, 3)
        self.nodes.append({"id": id_, "label": label, "kind": kind, "rate": shown, "detail": redacted(detail)})
        self.edges += [[before, id_] for before in after]
        return id_


def graph_of(config: PipelineConfig, monitor: FeedMonitor) -> dict[str, Any]:
    """Return the graph of a pipeline, with the rates of its feed."""
    rates, graph = Rates.of(monitor), _Graph()
    behind = _add_source(graph, config, monitor, rates)
    if config.source.numbered is not None:
        detail = "a record that cannot be read becomes a dead letter" if config.dead_letters is not None else ""
        behind = [graph.add("decode", config.decode.kind, "decode", after=behind, rate=rates.records, detail=detail)]
    judged = behind
    if config.expect:
        rules = ", ".join(f"{name} ({rule.on_violation})" for name, rule in config.expect.items())
        label = f"{len(config.expect)} rules" if len(config.expect) > 1 else next(iter(config.expect))
        behind = judged = [graph.add("expect", label, "expect", after=behind, rate=rates.records, detail=rules)]
    if config.dead_letters is not None:
        place = config.dead_letters.table or config.dead_letters.topic or ""
        kind = "table" if config.dead_letters.table else "topic"
        graph.add(
            "dead_letters", place, "dead_letters", after=judged, rate=rates.dead_letters, detail=f"{kind} {place}"
        )
    if config.transform is not None:
        behind = _add_steps(graph, config.name, config.transform, behind)
    for place, sink in config.sink_blocks:
        name = place.removeprefix("sinks.")
        target = sink.chosen.table_name or sink.kind
        label = target if place == "sink" else f"{name}: {target}"
        paused = monitor.snapshot().paused_sinks.get(name)
        detail = f"{sink.kind}, {sink.chosen.guarantee}{f'; waits: {paused}' if paused else ''}"
        graph.add(place, label, "sink", after=behind, rate=rates.rows, detail=detail)
    return {"nodes": graph.nodes, "edges": graph.edges}


def _add_source(graph: _Graph, config: PipelineConfig, monitor: FeedMonitor, rates: Rates) -> list[str]:
    kind = config.source.kind
    topics = sorted({partition.topic for partition in monitor.snapshot().partitions})
    if config.source.kafka is not None and not topics:
        topics = list(config.source.kafka.topics or [])
    if not topics:
        return [graph.add("source", kind, "source", rate=rates.records)]
    partitions = Counter(partition.topic for partition in monitor.snapshot().partitions)
    found = []
    for topic in topics[:MOST_TOPICS]:
        rate = rates.records * rates.topics.get(topic, 0.0) if rates.records is not None and rates.topics else None
        count = partitions[topic]
        detail = f"{kind}, {count} partition{'' if count == 1 else 's'}" if count else kind
        found.append(graph.add(f"topic:{topic}", topic, "topic", rate=rate, detail=detail))
    if len(topics) > MOST_TOPICS:
        found.append(graph.add("topics", f"{len(topics) - MOST_TOPICS} more topics", "topic", detail=kind))
    return found


def _add_steps(graph: _Graph, name: str, transform: Transform, behind: list[str]) -> list[str]:
    """Add the transform's tables and steps; return the ids of the last step's nodes."""
    views: dict[str, list[str]] = {name.lower(): behind}
    for stream, of_topic in transform.streams.items():
        detail = f"records of {of_topic.topic}"
        views[stream.lower()] = [graph.add(f"stream:{stream}", stream, "stream", after=behind, detail=detail)]
    for table, static in transform.tables.items():
        what = static.table or static.format or ""
        views[table.lower()] = [graph.add(f"table:{table}", table, "table", detail=what)]
    last = behind
    for step_name, step in transform.all_steps.items():
        # A step's inputs are the views that its SELECT names; if none is found, the previous step is its input.
        words = {word.lower() for word in re.findall(r"\w+", without_texts(step.sql or ""))}
        inputs = dict.fromkeys(node for view, nodes in views.items() if view in words for node in nodes)
        detail = "sql"
        if step.python is not None:
            detail = f"python {step.python}"
        elif step.deduplicate is not None:
            detail = f"first row of each {', '.join(step.deduplicate)}"
        last = [graph.add(f"step:{step_name}", step_name, "step", after=list(inputs) or last, detail=detail)]
        views[step_name.lower()] = last
    return last
