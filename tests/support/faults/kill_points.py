"""The requests of a feed's second batch to the S3 store, at which a test kills the driver."""

from dataclasses import dataclass
from typing import Literal

from tests.support.faults.landed import Landing, SinkKind
from tests.support.faults.s3_fault_proxy import Fault, FaultProxy, Matcher, put

When = Literal["before", "after", "then"]
"""Before the store receives the request; after the store has done it but has not answered; or at the next request of
any kind. "then" is for steps that S3 does not see, such as the swap in the catalog after metadata.json."""

Place = Literal[
    "offsets entry",
    "data file",
    "manifest",
    "manifest list",
    "table metadata",
    "log entry",
    "letters' data file",
    "letters' manifest",
    "letters' table metadata",
    "commits entry",
]


@dataclass(frozen=True)
class KillPoint:
    """The moment at which the driver dies: before or after a request of a batch, or at the next request."""

    sink: SinkKind
    place: Place
    when: When
    has_checkpoint: bool = True

    def __str__(self) -> str:
        return f"{self.sink}{'' if self.has_checkpoint else ' alone'}: {self.when} {self.place}"

    def arm(self, proxy: FaultProxy, landing: Landing, *, batch: int | None = None) -> Fault:
        """Let the driver die at this point of batch `batch`, or of the first batch that begins."""
        place = _request(self.place, landing, batch)
        # The request of the offsets entry begins the batch; all other requests follow it.
        after = [] if self.place == "offsets entry" else [batch_begun(landing, batch)]
        if not self.has_checkpoint:
            # Without a checkpoint, no request begins a batch, so the commit of the first batch stands for it.
            after = [batch_begun(landing), _request("table metadata", landing, batch)]
        if self.when == "then":
            return proxy.spoil("kill before", lambda request: True, after=[*after, place])
        return proxy.spoil("kill before" if self.when == "before" else "kill after", place, after=after)


def batch_begun(landing: Landing, batch: int | None = None) -> Matcher:
    """Match the request that begins a batch: its offsets entry, or without a checkpoint its first data file."""
    if not landing.has_checkpoint:
        return _request("data file", landing, batch)
    return put(f"/checkpoints/{landing.feed.name}/offsets/{_number(batch)}$")


def _number(batch: int | None) -> str:
    return "[0-9]+" if batch is None else str(batch)


def _request(place: Place, landing: Landing, batch: int | None) -> Matcher:
    return put(pattern_of(place, landing, batch))


def pattern_of(place: Place, landing: Landing, batch: int | None = None) -> str:
    """Return a regular expression for the paths of a kill point's objects or files."""
    name = landing.feed.name
    number = _number(batch)
    rows, letters = f"/{name}/rows", f"/{name}/letters"
    data_file = f"{rows}/data/.*[.]parquet$" if landing.sink == "iceberg" else f"/{landing.path}/part-.*[.]parquet$"
    found = {
        "offsets entry": f"/checkpoints/{name}/offsets/{number}$",
        "data file": data_file,
        "manifest": f"{rows}/metadata/[^/]*-m[0-9]+[.]avro$",
        "manifest list": f"{rows}/metadata/snap-[^/]*[.]avro$",
        "table metadata": f"{rows}/metadata/[^/]*[.]metadata[.]json$",
        "log entry": f"/{landing.path}/(_spark_metadata/{number}([.]compact)?|_delta_log/[0-9]+[.]json)$",
        "letters' data file": f"{letters}/data/.*[.]parquet$",
        "letters' manifest": f"{letters}/metadata/[^/]*-m[0-9]+[.]avro$",
        "letters' table metadata": f"{letters}/metadata/[^/]*[.]metadata[.]json$",
        "commits entry": f"/checkpoints/{name}/commits/{number}$",
    }
    return found[place]


ICEBERG: tuple[Place, ...] = (
    "offsets entry",
    "data file",
    "manifest",
    "manifest list",
    "table metadata",
    "letters' data file",
    "letters' table metadata",
    "commits entry",
)
PARQUET: tuple[Place, ...] = (
    "offsets entry",
    "data file",
    "log entry",
    "letters' data file",
    "letters' table metadata",
    "commits entry",
)
LEDGER_ALONE: tuple[Place, ...] = tuple(place for place in ICEBERG if not place.endswith("s entry"))
"""The requests of a feed without a checkpoint."""
BOTH: tuple[When, ...] = ("before", "after")

POINTS: tuple[KillPoint, ...] = (
    *(KillPoint("iceberg", place, when) for place in ICEBERG for when in BOTH),
    # The driver dies directly after one of the two swaps in the catalog.
    KillPoint("iceberg", "table metadata", "then"),
    KillPoint("iceberg", "letters' table metadata", "then"),
    *(KillPoint("iceberg", place, when, has_checkpoint=False) for place in LEDGER_ALONE for when in BOTH),
    KillPoint("iceberg", "table metadata", "then", has_checkpoint=False),
    KillPoint("iceberg", "letters' table metadata", "then", has_checkpoint=False),
    *(KillPoint("parquet", place, when) for place in PARQUET for when in BOTH),
    KillPoint("parquet", "letters' table metadata", "then"),
    *(KillPoint("delta", "data file", when) for when in BOTH),
    *(KillPoint("delta", "log entry", when) for when in BOTH),
    KillPoint("delta", "letters' data file", "before"),
)
