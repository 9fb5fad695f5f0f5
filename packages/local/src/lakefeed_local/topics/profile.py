"""Profile a topic: its rate from the broker's time index, and other figures from a sample of its records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from statistics import fmean, quantiles
from typing import Any

from lakefeed.clients.kafka.scan import record_times
from lakefeed.clients.kafka.topics import PartitionDescription, Topics
from lakefeed.config.sources import KafkaSource
from lakefeed.messages.printable import ReadableResult, counted, html_table
from lakefeed.offsets.ranges import Partition
from lakefeed_local.topics.record_view import ShownRecord

BUCKETS = 48
LONGEST = timedelta(days=1)
LATENESS = (1, 10, 60, 600, 3600)
"""Thresholds in seconds for late records; a late record is older than an earlier record of its partition."""
MOST_COMMON = 5
LONGEST_SHOWN = 40
MOST_DISTINCT = 100_000
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "text", list: "array", dict: "object"}


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The number of a topic's records in a span of time, according to their timestamps."""

    start: datetime
    end: datetime
    records: int

    @property
    def per_second(self) -> float:
        return self.records / max((self.end - self.start).total_seconds(), 1e-3)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes in bytes of the sampled records' values or keys."""

    mean: float
    median: float
    p95: float
    largest: int


@dataclass(frozen=True, kw_only=True)
class FieldProfile:
    """A field of the sampled values; nested names are joined by dots.

    Attributes:
        null: the share of values in which the field is null or missing.
        distinct: the number of different values, at most 100,000.
        least, greatest: the smallest and the largest number or text.
        common: the most frequent value; ``common_share`` is its share of the values that are not null.
    """

    name: str
    types: tuple[str, ...]
    null: float
    distinct: int
    least: Any
    greatest: Any
    common: Any
    common_share: float | None


@dataclass(frozen=True, kw_only=True, repr=False)
class TopicProfile(ReadableResult):
    """A topic's rate, and figures of a sample of its records.

    Attributes:
        offsets: the number of offsets in the topic; after compaction and transactions, some have no record.
        sampled: the number of records in the sample; shares refer to these.
        rates: rates of the last day, or since the topic's first record; empty if the topic has no timestamps.
        partitions: the number of offsets by partition.
        null_values: the share of tombstones.
        schema_ids: the number of records by the writer schema's id.
        formats: the number of records by the values' format.
        errors: the number of records that cannot be decoded, by the reason.
        null_keys: the share of records without a key.
        common_keys: the most frequent keys, with their shares of the records with a key.
        late: the share of late records by threshold in seconds; ``latest_delay`` is the largest delay.
    """

    topic: str
    offsets: int
    sampled: int
    first_time: datetime | None
    last_time: datetime | None
    rates: tuple[Rate, ...]
    partitions: Mapping[int, int]
    value_bytes: Sizes | None
    key_bytes: Sizes | None
    null_values: float
    formats: Mapping[str, int]
    schema_ids: Mapping[int, int]
    errors: Mapping[str, int]
    null_keys: float
    distinct_keys: int
    common_keys: tuple[tuple[str, float], ...]
    late: Mapping[int, float]
    latest_delay: float
    fields: tuple[FieldProfile, ...]

    @property
    def headline(self) -> str:
        rate = ""
        if self.rates:
            whole = Rate(
                start=self.rates[0].start, end=self.rates[-1].end, records=sum(each.records for each in self.rates)
            )
            rate = f", {whole.per_second:,.1f}/s"
        return f"{self.topic}: {counted(self.offsets, 'offset')}, {counted(self.sampled, 'record')} looked at{rate}"

    @property
    def figures(self) -> Mapping[str, str]:
        return dict(self.facts())

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of every fact except the fields and the rates."""
        if self.first_time and self.last_time:
            yield "times", f"{_time(self.first_time)} to {_time(self.last_time)}, in the sample"
        held = sorted(self.partitions.values())
        skew = f", the largest has {share(held[-1] / self.offsets)}" if self.offsets else ""
        yield "partitions", f"{len(held)}{skew}"
        for name, sizes in (("value bytes", self.value_bytes), ("key bytes", self.key_bytes)):
            if sizes is not None:
                text = f"mean {sizes.mean:,.0f}, median {sizes.median:,.0f}, 95% {sizes.p95:,.0f}"
                yield name, f"{text}, largest {sizes.largest:,}"
        yield "values", ", ".join(f"{name} {share(count / self.sampled)}" for name, count in self.formats.items())
        if self.schema_ids:
            ids = (f"{number} {share(count / self.sampled)}" for number, count in self.schema_ids.items())
            yield "schema ids", ", ".join(ids)
        for why, count in self.errors.items():
            yield "cannot be read", f"{share(count / self.sampled)}: {why}"
        keys = f"{share(self.null_keys)} null"
        if self.distinct_keys:
            common = ", ".join(f"{key} {share(part)}" for key, part in self.common_keys)
            keys += f", {self.distinct_keys:,} distinct; commonest {common}"
        yield "keys", keys
        behind = [f"{share(part)} by {seconds} s or more" for seconds, part in self.late.items() if part]
        yield "late", f"{', '.join(behind)}; at most {self.latest_delay:,.1f} s" if behind else "none by 1 s or more"

    def field_rows(self) -> list[tuple[str, ...]]:
        """Return a table of the fields, with the column names in the first row."""
        names = ("field", "type", "null", "distinct", "least", "greatest", "commonest")
        rows = [
            (
                each.name,
                "|".join(each.types),
                share(each.null),
                f"{each.distinct:,}",
                _brief(each.least),
                _brief(each.greatest),
                "" if each.common_share is None else f"{_brief(each.common)} {share(each.common_share)}",
            )
            for each in self.fields
        ]
        return [names, *rows]

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        rates = [{**asdict(rate), "per_second": rate.per_second} for rate in self.rates]
        common = [{"key": key, "share": part} for key, part in self.common_keys]
        return {**asdict(self), "rates": rates, "common_keys": common}

    def _repr_html_(self) -> str:
        names, *rows = self.field_rows()
        return super()._repr_html_() + (html_table(names, rows) if rows else "")


def profile_topic(
    source: KafkaSource, topic: str, parts: Mapping[Partition, PartitionDescription], records: Iterable[ShownRecord]
) -> TopicProfile:
    """Return the profile of a topic by its partitions and a sample of records; a partition's records are in order."""
    sample = _Sample()
    for record in records:
        sample.add(record)
    count = max(sample.count, 1)
    keyed = sum(sample.keys.values())
    return TopicProfile(
        topic=topic,
        offsets=sum(part.end_offset - part.start_offset for part in parts.values()),
        sampled=sample.count,
        first_time=min(sample.times, default=None),
        last_time=max(sample.times, default=None),
        rates=tuple(_rates(source, topic, parts)),
        partitions={key[1]: part.end_offset - part.start_offset for key, part in sorted(parts.items())},
        value_bytes=_sizes(sample.value_sizes),
        key_bytes=_sizes(sample.key_sizes),
        null_values=sample.formats["null"] / count,
        formats=dict(sample.formats.most_common()),
        schema_ids=dict(sample.schema_ids.most_common()),
        errors=dict(sample.errors.most_common(MOST_COMMON)),
        null_keys=(sample.count - keyed) / count,
        distinct_keys=len(sample.keys),
        common_keys=tuple((key, number / keyed) for key, number in sample.keys.most_common(MOST_COMMON)),
        late={seconds: sum(delay >= seconds for delay in sample.delays) / count for seconds in LATENESS},
        latest_delay=max(sample.delays, default=0.0),
        fields=tuple(field.profile(name, sample.values) for name, field in sample.fields.items()),
    )


def _rates(source: KafkaSource, topic: str, parts: Mapping[Partition, PartitionDescription]) -> Iterator[Rate]:
    """Yield the number of records in equal spans of time: the difference between the offsets at a span's ends."""
    filled = {key: part for key, part in parts.items() if part.start_offset < part.end_offset}
    times = record_times(source, {key: part.start_offset for key, part in filled.items()})
    known = [time for time in times.values() if time is not None and 0 < time < float("inf")]
    now = datetime.now(UTC)
    if not known:
        return
    began = max(datetime.fromtimestamp(min(known), UTC), now - LONGEST)
    if began >= now:
        return
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    ends = {key[1]: part.end_offset for key, part in filled.items()}
    before: dict[int, int] | None = None
    width = (now - began) / BUCKETS
    for at in range(BUCKETS + 1):
        bound = began + width * at
        found = cluster.offsets_at(topic, bound) if at < BUCKETS else {}
        offsets = {partition: found.get(partition, end) for partition, end in ends.items()}
        if before is not None:
            records = sum(max(0, offsets[partition] - before[partition]) for partition in ends)
            yield Rate(start=bound - width, end=bound, records=records)
        before = offsets


class _Sample:
    """Collects the figures of a profile, record by record."""

    def __init__(self) -> None:
        self.count = self.values = 0
        self.times: list[datetime] = []
        self.value_sizes: list[int] = []
        self.key_sizes: list[int] = []
        self.formats: Counter[str] = Counter()
        self.schema_ids: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.delays: list[float] = []
        self.fields: dict[str, _Field] = {}
        self._newest: dict[int, datetime] = {}

    def add(self, record: ShownRecord) -> None:
        self.count += 1
        self.formats[record.format] += 1
        if record.schema_id is not None:
            self.schema_ids[record.schema_id] += 1
        if record.error is not None:
            self.errors[record.error] += 1
        assert record.raw is not None
        if record.raw.value is not None:
            self.value_sizes.append(len(record.raw.value))
        if record.raw.key is not None:
            self.key_sizes.append(len(record.raw.key))
            self.keys[_text(record.key)] += 1
        if record.timestamp is not None:
            self.times.append(record.timestamp)
            newest = self._newest.get(record.partition, record.timestamp)
            if record.timestamp < newest:
                self.delays.append((newest - record.timestamp).total_seconds())
            self._newest[record.partition] = max(newest, record.timestamp)
        if record.error is None and isinstance(record.value, dict):
            self.values += 1
            for name, value in _leaves(record.value, ""):
                self.fields.setdefault(name, _Field()).add(value)


class _Field:
    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._bounds: dict[type, tuple[Any, Any]] = {}

    def add(self, value: Any) -> None:
        if value is None:
            self._types["null"] += 0
            return
        self._types[_TYPES[type(value)]] += 1
        text = _text(value)
        if text in self._seen or len(self._seen) < MOST_DISTINCT:
            self._seen[text] += 1
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            kind = str if isinstance(value, str) else float
            least, greatest = self._bounds.get(kind, (value, value))
            self._bounds[kind] = min(least, value), max(greatest, value)

    def profile(self, name: str, values: int) -> FieldProfile:
        """Return a field's profile; ``values`` is the number of sampled values, with or without the field."""
        there = sum(self._types.values())
        least, greatest = next(iter(self._bounds.values())) if len(self._bounds) == 1 else (None, None)
        common, count = next(iter(self._seen.most_common(1)), (None, 0))
        return FieldProfile(
            name=name,
            types=tuple(kind for kind, _ in self._types.most_common() if kind != "null") or ("null",),
            null=1 - there / values,
            distinct=len(self._seen),
            least=least,
            greatest=greatest,
            common=common,
            common_share=count / there if there else None,
        )


def _leaves(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", inner


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _sizes(sizes: list[int]) -> Sizes | None:
    if not sizes:
        return None
    cuts = quantiles(sizes, n=20, method="inclusive") if len(sizes) > 1 else [float(sizes[0])] * 19
    return Sizes(mean=fmean(sizes), median=cuts[9], p95=cuts[18], largest=max(sizes))


def share(part: float) -> str:
    """Format a share as ``12.5%``; a small share above 0 becomes ``<0.1%``."""
    return "<0.1%" if 0 < part < 0.001 else f"{part:.1%}"


def _brief(value: Any) -> str:
    text = "" if value is None else _text(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def _time(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
