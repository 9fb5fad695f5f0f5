"""Check a user's catalog with commits to a scratch table, which it must accept or refuse."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from pydantic import PrivateAttr
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    WaitingForLockException,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import LongType, NestedField

NAME = "lakefeed_scratch_"
KEY = "lakefeed.scratch"
"""A key in snapshot summaries and table properties, as the ledger uses such keys."""
_CONFLICTS = (CommitFailedException, TableAlreadyExistsError, WaitingForLockException)
_UNKNOWN = (CommitStateUnknownException, ServerError, ServiceUnavailableError, OSError)
"""After one of these errors, such as a lost connection, the commit may or may not have landed."""
_SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))

Outcome: TypeAlias = Exception | None
"""The catalog's reason for refusing a change; None if it has accepted the change."""


class NotTried(Exception):
    """The catalog has refused a step that it should accept, so it is unknown which commits it would refuse."""


@dataclass(frozen=True)
class Fault:
    """A promise that a catalog does not keep; ``loses`` means that rows could be lost or duplicated."""

    what: str
    loses: bool = True


class _Overtaken(AssertRefSnapshotId):
    """Land another commit while PyIceberg checks this assertion, for catalogs whose assertions the client checks."""

    _meanwhile: Callable[[], None] | None = PrivateAttr(default=None)

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if self._meanwhile is not None:
            self._meanwhile()
        super().validate(base_metadata)


class ScratchTable:
    """A table that two clients write to, as two drivers would; the caller must ``remove`` it.

    Args:
        clients: two clients of one catalog.
        namespace: the namespace, which is created if it is missing.
        server_decides: whether the server checks assertions, as a REST catalog does; otherwise the client checks them,
            and the catalog compares the current metadata when it replaces it.
    """

    def __init__(self, clients: tuple[Catalog, Catalog], namespace: tuple[str, ...], *, server_decides: bool) -> None:
        self._clients = clients
        self._namespace = namespace
        self._server_decides = server_decides
        self._has_created_namespace = False
        self._landed: list[Snapshot] = []
        self._made: list[Table] = []
        self._may_exist = False
        self.name = (*namespace, f"{NAME}{uuid.uuid4().hex[:8]}")

    def create(self) -> None:
        """Create the table; raise NotTried if the catalog does not let this login do that."""
        try:
            if not self._clients[0].namespace_exists(self._namespace):
                self._has_created_namespace = True
                self._clients[0].create_namespace(self._namespace)
            self._may_exist = True
            self._create(0)
        except Exception as error:
            # After other errors the namespace or the table may exist: the answer may be lost.
            self._has_created_namespace &= not isinstance(error, NamespaceAlreadyExistsError)
            self._may_exist &= not isinstance(error, ForbiddenError)
            raise NotTried(f"this login cannot create a table: {reason(error)}") from error

    def faults(self) -> Iterator[Fault]:
        """Send commits, and yield the promises that the catalog breaks; raise NotTried if it refuses all commits."""
        if (again := _outcome(lambda: self._create(1))) is None:
            yield Fault("it creates a table that exists")
        elif not isinstance(again, _CONFLICTS):
            yield Fault(f"it answers the creation of a table that exists by: {reason(again)}", loses=False)
        first = "it accepts two first commits, although both assert that the branch is absent"
        yield from self._race(first)
        yield from self._race("it accepts two commits that begin at the same state of the table")
        if self._landed[1:] and _outcome(self._assert_old_snapshot) is None:
            yield Fault("it accepts a commit that asserts an old snapshot of the branch")
        yield from self._kept()

    def remove(self) -> str | None:
        """Remove the table and its files; return why the table still exists, or None if it is gone."""
        left: str | None = None
        # Some servers drop tables only with a purge, others refuse a purge.
        for drop in (self._clients[0].purge_table, self._clients[0].drop_table):
            try:
                drop(self.name)
                left = None
            except (NoSuchTableError, NoSuchNamespaceError):
                left = None
            except Exception as error:
                left = reason(error)
                continue
            break
        for table in self._made if left is None else ():
            # Delete the files of refused commits, which a purge leaves. A location without the table's name may have
            # other files.
            if self.name[-1] in table.location() and isinstance(table.io, PyArrowFileIO):
                scheme, netloc, path = table.io.parse_location(table.location(), table.io.properties)
                with suppress(Exception):
                    table.io.fs_by_scheme(scheme, netloc).delete_dir(path)
        if self._has_created_namespace:
            with suppress(Exception):
                self._clients[0].drop_namespace(self._namespace)
        return left if self._made or (self._may_exist and _outcome(self._require_absent) is not None) else None

    def _require_absent(self) -> None:
        if self._clients[0].table_exists(self.name):
            raise TableAlreadyExistsError

    def _create(self, client: int) -> None:
        properties = {"format-version": "2", KEY: "0"}
        self._made.append(self._clients[client].create_table(self.name, _SCHEMA, properties=properties))

    def _race(self, wrong: str) -> Iterator[Fault]:
        """Send two commits that are based on the same snapshot, and yield the faults in the outcome."""
        tables = [client.load_table(self.name) for client in self._clients]
        bases = [table.current_snapshot() for table in tables]
        if any((base and base.snapshot_id) != self._head for base in bases):
            yield Fault("it returns an old state of a table after a commit")
            return
        outcomes: list[Outcome] = []
        land = [partial(self._land, number, table) for number, table in enumerate(tables)]

        def land_other() -> None:
            outcomes.append(_outcome(land[1]))

        if self._server_decides:
            land_other()
            outcomes.append(_outcome(land[0]))
        else:
            outcomes.append(_outcome(partial(land[0], meanwhile=land_other)))
        refusals = [each for each in outcomes if each is not None]
        if len(refusals) == len(outcomes) or any(isinstance(each, _UNKNOWN) for each in refusals):
            raise NotTried(f"a commit fails: {reason(refusals[0])}") from refusals[0]
        if not refusals:
            yield Fault(wrong)
        elif not isinstance(refusals[0], _CONFLICTS):
            yield Fault(f"it answers a conflict not by status 409, but by: {reason(refusals[0])}", loses=False)

    @property
    def _head(self) -> int | None:
        return self._landed[-1].snapshot_id if self._landed else None

    def _land(self, number: int, table: Table, *, meanwhile: Callable[[], None] | None = None) -> None:
        """Commit an empty snapshot that follows the newest one of ``table``."""
        metadata, parent = table.metadata, table.current_snapshot()
        parent_id = None if parent is None else parent.snapshot_id
        # With equal sequence numbers, even a server that ignores assertions would refuse the second commit.
        sequence: int = getattr(metadata, "last_sequence_number", 0) + 2 - number
        snapshot_id = metadata.new_snapshot_id()
        place = f"{table.location()}/metadata/snap-{snapshot_id}-1-{uuid.uuid4()}.avro"
        with write_manifest_list(2, table.io.new_output(place), snapshot_id, parent_id, sequence, "null"):
            pass
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent_id,
                "sequence-number": sequence,
                "manifest-list": place,
                "summary": Summary(Operation.APPEND, **{KEY: str(sequence)}),
                "schema-id": metadata.current_schema_id,
            }
        )
        assertion = _Overtaken.model_validate({"ref": "main", "snapshot-id": parent_id})
        assertion._meanwhile = meanwhile
        self._clients[number].commit_table(
            table,
            (AssertTableUUID(uuid=metadata.table_uuid), assertion),
            (
                AddSnapshotUpdate(snapshot=snapshot),
                SetSnapshotRefUpdate.model_validate(
                    {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
                ),
                SetPropertiesUpdate(updates={KEY: str(sequence)}),
            ),
        )
        self._landed.append(snapshot)

    def _assert_old_snapshot(self) -> None:
        table = self._clients[0].load_table(self.name)
        old = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": self._landed[0].snapshot_id})
        self._clients[0].commit_table(table, (old,), (SetPropertiesUpdate(updates={f"{KEY}.old": "1"}),))

    def _kept(self) -> Iterator[Fault]:
        """Yield a fault unless the table has the newest commit that the catalog has accepted."""
        table = self._clients[1].load_table(self.name)
        sent, found = self._landed[-1], table.current_snapshot()
        if found is None or found.snapshot_id != sent.snapshot_id:
            yield Fault("it returns an old state of a table after a commit")
            return
        if found.sequence_number != sent.sequence_number:
            yield Fault("it does not keep the sequence numbers of snapshots")
        value = str(sent.sequence_number)
        if found.summary is None or found.summary[KEY] != value:
            yield Fault(f"it does not keep the key {KEY} of a commit's summary, where the offsets of a batch are")
        if table.properties.get(KEY) != value:
            yield Fault(f"it does not keep the table property {KEY}, where the position of a feed is")


def reason(error: Exception) -> str:
    """Return the first line of an error's text without HTML, or the name of its class."""
    return re.split(r"[\n<]", str(error))[0].strip(" :,") or type(error).__name__


def _outcome(change: Callable[[], object]) -> Outcome:
    try:
        change()
    except Exception as error:
        return error
    return None
