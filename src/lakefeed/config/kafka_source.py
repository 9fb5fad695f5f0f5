"""The block of a pipeline file for topics of Kafka."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lakefeed.config.base import Complaint, Model, complain, entries
from lakefeed.config.durations import Period, seconds_of
from lakefeed.config.kafka_options import consumer_complaints
from lakefeed.config.names import TOPIC, Bound, Brokers
from lakefeed.config.secrets import Scalar


class KafkaSource(Model):
    """Topics of one Kafka cluster."""

    bootstrap_servers: Brokers = Field(description="host:port of one or more brokers, separated by commas.")
    topics: list[str] | None = Field(None, description="Topics to read.", min_length=1)
    topics_pattern: str | None = Field(None, description="Or a regular expression of topic names.")
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="Where a new feed begins; afterwards it resumes where its last commit ended."
    )
    max_records_per_batch: Bound = Field(
        1_000_000, description="Upper bound on the records of one micro-batch, over all partitions."
    )
    min_records_per_batch: Bound | None = Field(
        None,
        description="Wait until so many records are there, or max_wait is over: larger batches write larger files. "
        "Default: whatever is there when the trigger says.",
    )
    max_wait: Period = Field(
        "10 minutes", description="No record waits longer than this for min_records_per_batch to come together."
    )
    deduplicate: bool = Field(
        False,
        description="Leave out the copies that lakefeed's Kafka sink wrote when it resent a batch, recognized by the "
        "records' headers. Makes the feed one with state.",
    )
    monitoring_group: str | None = Field(
        None,
        min_length=1,
        description="Consumer group that is set to the feed's position after each batch, for tools that watch lag. "
        "Nothing reads it back.",
    )
    options: dict[str, Scalar] = Field(
        default_factory=dict,
        description="Kafka client settings with the prefix kafka., for instance kafka.max.poll.records.",
    )

    @field_validator("topics", mode="before")
    @classmethod
    def _topic_names(cls, topics: Any) -> Any:
        topics = [topics] if isinstance(topics, str) else topics
        hint = "write several as a list: [orders, payments]; for a regular expression use topics_pattern"
        complain(
            Complaint(key=index, what=f"'{topic}' can be no topic's name", hint=hint)
            for index, topic in entries(topics)
            if isinstance(topic, str) and (not TOPIC.fullmatch(topic) or topic in (".", ".."))
        )
        complain(
            Complaint(key=index, what=f"the topic '{topic}' is there twice", hint="remove it: each topic is read once")
            for index, topic in entries(topics)
            if topic in topics[:index]
        )
        return topics

    @field_validator("options", mode="before")
    @classmethod
    def _client_options(cls, options: Any) -> Any:
        complain(consumer_complaints(options) if isinstance(options, dict) else ())
        return options

    @field_validator("topics_pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
            if not pattern or "(?P" in pattern:
                what = "it is empty" if not pattern else "(?P is Python's way, and Java reads it: (?<name>…)"
                raise ValueError(f"not a regular expression: {what}")
        return pattern

    @model_validator(mode="after")
    def _topics_or_pattern(self) -> KafkaSource:
        if (self.topics is None) == (self.topics_pattern is None):
            raise ValueError("give either topics or topics_pattern")
        return self

    @model_validator(mode="after")
    def _bounds_of_a_batch(self) -> KafkaSource:
        least = self.min_records_per_batch
        if least is None and "max_wait" in self.model_fields_set:
            raise ValueError("max_wait is for min_records_per_batch, which is not said")
        if least is not None and least > self.max_records_per_batch:
            raise ValueError("min_records_per_batch is more than max_records_per_batch")
        return self

    @property
    def max_wait_seconds(self) -> int:
        """``max_wait`` as a number."""
        return seconds_of(self.max_wait)

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is among those to read."""
        if self.topics is not None:
            return topic in self.topics
        return re.fullmatch(self.topics_pattern or "", topic) is not None
