"""Every error that lakefeed raises on purpose.

::

    LakefeedError             what, where and what to do next
    ├── UserError             the user can fix the cause: exit status 2
    │   └── ConfigError (RowsRefused, SchemaUnusable), MissingExtra, JavaError, ResourceMissing,
    │       AccessDenied (FileDenied), CheckpointMismatch (CheckpointInUse, DriverReplaced, FeedMoved), RecordsLost,
    │       BranchDiverged, SchemaIncompatible, DecodeError
    └── WorldError            a server or the network failed, perhaps for a moment: exit status 1
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
        where: the file, endpoint, topic, table or option that the error is about.
        hint: what to do next, as a sentence or a command.
        page: the documentation page about the error. Default: the page of the class. If that one is general: the page
            for the text of ``what``, or else for the module that raises the error.
    """

    exit_status: int = 1
    topic: ClassVar[str] = "troubleshooting"
    """The page of the documentation that explains the class."""
    passes: bool = False
    """Whether a retry may succeed, because a server that answered before may recover."""

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
        """The command that prints the page about the error."""
        return page_command(self.page_topic)

    def as_dict(self) -> dict[str, str | None]:
        parts = {"what": self.what, "where": self.where, "hint": self.hint, "page": self.page}
        return {"error": type(self).__name__, **parts}


class UserError(LakefeedError):
    """The user can fix the error's cause; commands end with exit status 2."""

    exit_status = 2


class WorldError(LakefeedError):
    """A server or the network failed; commands end with exit status 1."""

    exit_status = 1


class ConfigError(UserError):
    """A pipeline file, an option or an environment variable is wrong."""

    topic = "pipeline-files"


class RowsRefused(ConfigError):
    """The sink refuses values of rows, such as a text that is too long for its column."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of lakefeed: from a clone, because lakefeed is not on PyPI."""
    return f"in a clone of lakefeed: make wheels && pip install --find-links dist 'lakefeed[{extra}]'"


class MissingExtra(UserError):
    """A Python package is missing; one of lakefeed's extras installs it."""

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> MissingExtra:
        """Return the error for a missing ``package`` that ``lakefeed[extra]`` installs."""
        what = f"{purpose} needs the Python package {package}, which is not installed"
        return cls(what, hint=install_command(extra))


class JavaError(UserError):
    """No Java was found, or it is older than Spark needs."""

    topic = "support"


class ResourceMissing(UserError):
    """A topic, bucket, table, file or subject does not exist."""

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
    """The checkpoint belongs to another pipeline, or has other offsets than the table."""

    topic = "offsets"


class CheckpointInUse(CheckpointMismatch):
    """Another driver wrote to this driver's checkpoint, or removed files from it, while this driver ran."""


class DriverReplaced(CheckpointMismatch):
    """Another driver has taken the feed over (its fence), so this driver can no longer commit."""


class FeedMoved(CheckpointMismatch):
    """An operator moved the feed to other offsets while it ran; its next start resumes at these offsets."""


class RecordsLost(UserError):
    """A topic was recreated since the feed read it, or it lost records that the feed has not read yet."""

    topic = "offsets"


class BranchDiverged(UserError):
    """The table has commits that the feed's branch lacks, so the branch cannot be published."""


class SchemaIncompatible(UserError):
    """Two versions of a schema, or rows and a table, are incompatible; the error names the field and both types."""

    topic = "schema-evolution"


class SchemaUnusable(SchemaIncompatible, ConfigError):
    """No table can store rows of this schema; another version of the schema may work."""


class DecodeError(UserError):
    """A record cannot be read in the declared format."""

    topic = "dead-letters"


class Unreachable(WorldError):
    """A broker, registry, store or catalog does not answer."""

    topic = "check"
    passes = True


class BrokerUnreachable(Unreachable):
    """A Kafka broker does not answer, or is not the partition's leader now."""


class DownloadError(WorldError):
    """A download is incomplete, or its content differs from the lock file."""

    topic = "jars"


class PortTaken(WorldError):
    """Another process listens on the requested port."""

    topic = "quickstart"


class SchemaChanged(WorldError):
    """A writer changed its schema, or encrypts values, and the pipeline file stops the feed for that.

    The settings are ``schema.on_change: fail`` and ``decode.on_encrypted: stop``.
    """

    topic = "schema-evolution"


class ErrorBudgetExceeded(WorldError):
    """A batch, or a window of batches, has more dead letters than the pipeline allows; the batch was not written."""

    topic = "dead-letters"


class AuditFailed(WorldError):
    """A table does not meet its pipeline's expectations and was not published; its rows stay in the branch."""


class TableBusy(WorldError):
    """Another upkeep job works on the table, or commits of other writers came first in all attempts."""

    topic = "upkeep"


class FeedPaused(WorldError):
    """An operator has paused the feed, and this run does not wait until the pause ends."""

    topic = "operate"


class JobFailed(WorldError):
    """Spark stopped the job for a reason that no other class names."""
