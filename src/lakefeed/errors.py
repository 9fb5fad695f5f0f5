"""Every error that lakefeed raises on purpose.

::

    LakefeedError             what, where and what to do next
    ├── UserError             the user can fix it: exit status 2
    │   └── ConfigError (RowsRefused, SchemaUnusable), MissingExtra, JavaError, ResourceMissing,
    │       AccessDenied (FileDenied), CheckpointMismatch (CheckpointInUse, DriverReplaced, FeedMoved), RecordsLost,
    │       BranchDiverged, SchemaIncompatible, DecodeError
    └── WorldError            something outside failed, perhaps for a moment: exit status 1
        └── Unreachable (BrokerUnreachable), DownloadError, PortTaken, SchemaChanged, ErrorBudgetExceeded, AuditFailed,
        TableBusy, JobFailed, FeedPaused
"""

from __future__ import annotations

import sys
from typing import ClassVar

from lakefeed.messages.pages import GENERAL, page_command, page_of_module, page_of_text
from lakefeed.messages.printable import shortened
from lakefeed.messages.redaction import redacted


class LakefeedError(Exception):
    """Base of all errors that lakefeed raises on purpose.

    Args:
        what: what went wrong, one sentence without a full stop at its end.
        where: the file, endpoint, topic, table or option it is about.
        hint: what to do next, as a sentence or a command.
        page: the topic of the page that helps: the class's, or where that has many causes, the text's or module's.
    """

    exit_status: int = 1
    topic: ClassVar[str] = "troubleshooting"
    """The page of the documentation that explains the class."""
    passes: bool = False
    """Whether a server that has answered rightly before may do so again, and nothing has waited for it yet."""

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, page: str | None = None
    ) -> None:
        if page is None and self.topic in GENERAL:
            page = page_of_text(what) or page_of_module(str(sys._getframe(1).f_globals.get("__name__")))
        self.page_topic = page or self.topic
        self.what = shortened(redacted(what))
        self.where = redacted(where) if where else where
        self.hint = redacted(hint) if hint else hint
        super().__init__(self.__str__())

    def __str__(self) -> str:
        where = f"\n  where: {self.where}" if self.where else ""
        return f"{self.what}{where}\n  next:  {self.hint}" if self.hint else f"{self.what}{where}"

    @property
    def page(self) -> str:
        """The command that prints the page about such errors."""
        return page_command(self.page_topic)

    def as_dict(self) -> dict[str, str | None]:
        """Return class and parts for ``--output json``."""
        parts = {"what": self.what, "where": self.where, "hint": self.hint, "page": self.page}
        return {"error": type(self).__name__, **parts}


class UserError(LakefeedError):
    """Something that the user can fix; commands end with exit status 2."""

    exit_status = 2


class WorldError(LakefeedError):
    """Something outside failed; commands end with exit status 1."""

    exit_status = 1


class ConfigError(UserError):
    """A pipeline file, an option or an environment variable is wrong."""

    topic = "pipeline-files"


class RowsRefused(ConfigError):
    """The sink refuses values of rows, such as a text that is too long for its column."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of lakefeed."""
    return f"pip install 'lakefeed[{extra}]'"


class MissingExtra(UserError):
    """A Python package is missing that one of lakefeed's extras brings."""

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> MissingExtra:
        """Make the error for a missing ``package`` that ``lakefeed[extra]`` brings."""
        what = f"{purpose} needs the Python package {package}, which is not installed"
        return cls(what, hint=install_command(extra))


class JavaError(UserError):
    """No Java was found, or it is older than Spark needs."""

    topic = "support"


class ResourceMissing(UserError):
    """A topic, bucket, table, file or subject that should be there is not."""

    topic = "check"


class AccessDenied(UserError):
    """Credentials were refused."""

    topic = "check"
    passes = True


class FileDenied(AccessDenied):
    """A file of this machine cannot be written."""

    topic = "troubleshooting"
    passes = False


class CheckpointMismatch(UserError):
    """The checkpoint belongs to another pipeline, or disagrees with the table."""

    topic = "offsets"


class CheckpointInUse(CheckpointMismatch):
    """Another driver has written in the checkpoint while this one ran, or has removed files of it."""


class DriverReplaced(CheckpointMismatch):
    """Another driver has taken the feed's fence: this one can commit nothing more."""


class FeedMoved(CheckpointMismatch):
    """An operator has moved the feed to other offsets while it ran; its next start resumes there."""


class RecordsLost(UserError):
    """A topic is not the one that a feed has read, or no longer holds what it has not read yet."""

    topic = "offsets"


class BranchDiverged(UserError):
    """A table has commits that the branch of a feed lacks, so that the branch cannot be published."""


class SchemaIncompatible(UserError):
    """Two versions of a schema, or rows and a table, cannot be brought together; names the field and both types."""

    topic = "schema-evolution"


class SchemaUnusable(SchemaIncompatible, ConfigError):
    """A schema gives no rows that this feed can write, whatever its table: another version of it may."""


class DecodeError(UserError):
    """A record cannot be read in the declared format."""

    topic = "dead-letters"


class Unreachable(WorldError):
    """A broker, registry, store or catalog does not answer."""

    topic = "check"
    passes = True


class BrokerUnreachable(Unreachable):
    """A Kafka broker does not answer, or does not lead the partition now."""


class DownloadError(WorldError):
    """A download did not arrive whole, or is not what the lock file says."""

    topic = "jars"


class PortTaken(WorldError):
    """Another process listens on a port that was asked for."""

    topic = "quickstart"


class SchemaChanged(WorldError):
    """A writer's schema became another, and the pipeline's policy is to stop then."""

    topic = "schema-evolution"


class ErrorBudgetExceeded(WorldError):
    """More records could not become rows than the pipeline allows; nothing of their batch was written."""

    topic = "dead-letters"


class AuditFailed(WorldError):
    """A table is not as its pipeline expects, and is not published; the rows are in its branch."""


class TableBusy(WorldError):
    """Others are at work on the table and come first: another upkeep job, or writers whose commits keep winning."""

    topic = "upkeep"


class FeedPaused(WorldError):
    """An operator has paused the feed, and the run is not one that waits."""

    topic = "operate"


class JobFailed(WorldError):
    """Spark stopped the job for a reason that no other class names."""
