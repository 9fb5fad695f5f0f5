"""``source.kinesis``: a Kinesis stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, SecretStr

from lakefeed.config.addresses import DatasetName, PlainTextLogin, over_http
from lakefeed.config.base import ConfigProblem, spelled
from lakefeed.config.blocks import InstalledSource, PipelineBlocks
from lakefeed.config.connections import AWS_KEYS, AwsAccess, Endpoint, aws_settings
from lakefeed.config.values import Count
from lakefeed.errors import AccessDenied, LakefeedError, RecordsLost, ResourceMissing, Unreachable

_NO_STREAM = "a stream's name has letters, digits, '_', '.' and '-'; of an ARN, write the part after the '/'"


class KinesisSource(InstalledSource, AwsAccess):
    """A Kinesis stream. The environment provides addresses and keys that are not set here.

    Without keys, every process uses the AWS default chain (environment, profile, web identity, instance).
    """

    reader: ClassVar[str] = "lakefeed_kinesis.stream:KinesisStream"
    jar_groups: ClassVar[tuple[str, ...]] = ("kinesis",)
    failures: ClassVar[Mapping[str, LakefeedError]] = {
        r"Kinesis has no such stream": ResourceMissing(
            "there is no such stream in Kinesis",
            hint="correct source.kinesis.stream, region and endpoint; or create the stream",
        ),
        r"Kinesis refuses the credentials": AccessDenied(
            "Kinesis refuses the credentials",
            hint="check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; the key needs the permissions "
            "DescribeStreamSummary, ListShards, GetShardIterator and GetRecords",
        ),
        r"Kinesis (?:does not answer|throttles all requests)": Unreachable(
            "Kinesis does not answer",
            hint="check source.kinesis.endpoint and region; a shard allows five reads a second for all its readers",
        ),
        r"Kinesis has lost records": RecordsLost(
            "the stream no longer has records that the feed has not read",
            hint="lakefeed run pipeline.yaml --accept-loss resumes without these records, and notes the gap in the "
            "table's ledger",
        ),
    }

    endpoint: Endpoint | None = None
    """URL of the service. Default: AWS_ENDPOINT_URL_KINESIS or AWS_ENDPOINT_URL, else AWS itself."""
    access_key: SecretStr | None = Field(None, description="Access key id. Default: AWS_ACCESS_KEY_ID.")
    secret_key: SecretStr | None = Field(None, description="Secret key. Default: AWS_SECRET_ACCESS_KEY.")
    session_token: SecretStr | None = None
    """Token of temporary credentials. Default: AWS_SESSION_TOKEN."""
    region: str | None = Field(None, description="Region of the stream. Default: AWS_REGION, else us-east-1.")
    stream: Annotated[str, spelled(r"[a-zA-Z0-9_.-]{1,128}", _NO_STREAM)] = Field(description="The stream's name.")
    start: Literal["earliest", "latest"] = "earliest"
    """Where a new feed begins; later runs resume at the end of the last commit."""
    max_records_per_batch: Count = 100_000
    """The most records in a batch, of all shards together."""

    @property
    def topics(self) -> list[str]:
        """The stream's name, which takes the place of a topic's name in a schema registry."""
        return [self.stream]

    @property
    def needs_checkpoint(self) -> str | None:
        if self.start == "earliest":
            return None
        return f"until the first commit, only the checkpoint has the position of start: {self.start}"

    def completed(self, environment: Mapping[str, str]) -> Self:
        default = aws_settings(environment, "KINESIS")
        if self.access_key is not None:
            default = {name: value for name, value in default.items() if name not in AWS_KEYS}
        given = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        return self.model_validate({**default, **given})

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        keyed = config.upserting
        if keyed is not None and not keyed.order_by:
            what = "offsets of a stream do not order the changes of a key: a split or merge moves keys to other shards"
            hint = "use a sink with order_by, such as iceberg"
            if "order_by" in type(config.sink.chosen).model_fields:
                hint = "set order_by to a column of the value that orders the changes"
            yield ConfigProblem(what, hint=hint)

    def plain_text_logins(self) -> Iterator[PlainTextLogin]:
        if self.endpoint is not None and self.access_key is not None:
            yield from over_http("endpoint", (self.endpoint,))

    @property
    def dataset(self) -> DatasetName | None:
        return DatasetName(f"kinesis://{self.region or 'us-east-1'}", self.stream)
