"""Where the tail of a table is: never below the table's location, where clean-ups of other engines delete it.

By default ``.skipstone-tail/<table uuid>`` beside the table. Any other directory is recorded in properties of
the table, so that every later writer looks there. Anyone can have set these: a directory that they name is
written to only if this table's tail is there already, or if the user passes it as ``wal=``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import CommitFailedException

from skipstone.errors import ConflictError, UsageError
from skipstone.iceberg.catalogs import catalog_errors
from skipstone.iceberg.metadata import tolerant
from skipstone.store.absolute import AbsoluteStore, local_name
from skipstone.store.local import LocalStore
from skipstone.store.store import Store
from skipstone.table.tail.lease import Lease, is_held, lost, read_state
from skipstone.table.tail.recovery import inspect_log

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

    from skipstone.typing import StrPath

WAL: Final = "skipstone.tail.wal"
"""The table property with the directory given as ``wal=``."""
ID: Final = "skipstone.tail.id"
"""The table property with the id of the tail in that directory."""
FOLDER: Final = ".skipstone-tail"
_TRIES: Final = 5


def tail_root(metadata: TableMetadata) -> str | None:
    """The directory of the tails, among them this table's; None if none is known."""
    recorded = metadata.properties.get(WAL)
    if recorded is not None:
        return recorded
    local = local_name(metadata.location.rstrip("/"))
    return None if local is None else str(Path(local).parent / FOLDER)


def tail_store(metadata: TableMetadata, name: str, below: Store) -> LocalStore:
    """The directory of a table's tail, which need not exist.

    If the table's store is bound to a root, so is the tail: the one beside the table counts as below it.
    """
    assert isinstance(below, AbsoluteStore)
    if below.root is not None:
        below.check(metadata.location)
        if WAL in metadata.properties:
            hint = "open the table without stay_below_root if you trust its author, or pass wal="
            problem = f"property {WAL} names a directory outside the table"
            raise UsageError(problem, path=name, hint=hint)
    root = tail_root(metadata)
    if root is not None and not (root.startswith("/") and "\0" not in root):
        hint = f"unset property {WAL}"
        raise UsageError(f"directory of the tail is not an absolute path: {root!r}", path=name, hint=hint)
    if root is None:
        hint = "pass wal= with a directory of a local disk, which is then recorded in the table"
        raise UsageError("table is not in a local directory, and has no tail yet", path=name, hint=hint)
    return _store(root, metadata)


def _store(root: str, metadata: TableMetadata) -> LocalStore:
    return LocalStore(str(Path(root) / str(metadata.table_uuid)))


def check_location(metadata: TableMetadata, lease: Lease) -> None:
    """Raise if the table's tail is no longer the one that a lease is for."""
    recorded = metadata.properties.get(ID, lease.state.id)
    if _store(tail_root(metadata) or "", metadata).uri != lease.store.uri or recorded != lease.state.id:
        raise lost(lease.name, lease.store.uri)


def claim(table: IcebergTable, name: str, wal: StrPath | None, below: Store) -> Lease:
    """Take the lease of a table's tail, and record in the table where it is unless that is the default."""
    metadata = table.metadata
    if wal is None:
        store = tail_store(metadata, name, below)
        check_own(store, metadata)
    else:
        root = _outside(wal, metadata)
        store = _store(root, metadata)
        before = tail_root(metadata)
        if before is not None and before != root:
            _check_left(_store(before, metadata), metadata, name)
    lease = Lease.acquire(store, str(metadata.table_uuid), name)
    try:
        recorded = metadata.properties.get(ID)
        if recorded is not None and tail_root(metadata) == str(Path(store.uri).parent):
            if recorded != lease.state.id:
                raise _elsewhere(lease.store)
        elif wal is not None and root != tail_root(metadata):
            _record(table, name, {WAL: root, ID: lease.state.id})
    except BaseException:
        lease.release()
        raise
    return lease


def _outside(wal: StrPath, metadata: TableMetadata) -> str:
    given = local_name(os.fspath(wal))
    if given is None or "\0" in given:
        hint = "pass a directory of a local disk: a log needs locks and appends"
        raise UsageError(f"wal= is not a local directory: {wal}", path=metadata.location, hint=hint)
    root = os.path.abspath(given)  # noqa: PTH100
    location = local_name(metadata.location.rstrip("/"))
    if location is not None and f"{os.path.realpath(root)}/".startswith(f"{os.path.realpath(location)}/"):
        hint = "use a directory outside the table, whose clean-ups delete files that no snapshot names"
        raise UsageError(f"directory is below the table's location {location}", path=root, hint=hint)
    return root


def check_own(store: LocalStore, metadata: TableMetadata) -> None:
    """Refuse a directory that a property names, unless the tail is in it; nothing is written there before."""
    if WAL not in metadata.properties:
        return
    state = read_state(store)
    if state is None or (state.table, state.id) != (str(metadata.table_uuid), metadata.properties.get(ID)):
        raise _elsewhere(store)


def _check_left(store: LocalStore, metadata: TableMetadata, name: str) -> None:
    """Refuse to leave a directory with unflushed rows."""
    state = read_state(store)
    if is_held(store):
        raise ConflictError(f"{name} already has a tail writer", path=store.uri, hint="close it first")
    recorded = metadata.properties.get(ID)
    if recorded is not None and (state is None or state.id != recorded):
        raise _elsewhere(store)
    if state is not None and inspect_log(Path(store.uri), state, metadata).frames:
        hint = "open the writer without wal=, flush it and close it"
        raise ConflictError("tail has unflushed rows in another directory", path=store.uri, hint=hint)


def _elsewhere(store: LocalStore) -> ConflictError:
    hint = f"open the writer on the host with the tail; if it is lost, unset properties {WAL} and {ID}"
    return ConflictError("tail of the table is not in this directory on this host", path=store.uri, hint=hint)


def _record(table: IcebergTable, name: str, properties: dict[str, str]) -> None:
    for left in reversed(range(_TRIES)):
        with catalog_errors(table.catalog, name):
            try:
                with table.transaction() as change:
                    change.set_properties(properties)
                return
            except CommitFailedException:
                if not left:
                    raise
                tolerant(table.refresh)
