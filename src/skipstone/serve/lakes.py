"""The lakes and tables of a server, opened once, and the plans that are not fetched completely."""

from __future__ import annotations

import ctypes
import gc
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import UsageError
from skipstone.scan.lake import Lake
from skipstone.scan.table import Table
from skipstone.serve.access import Caller, Limits, Refusal
from skipstone.serve.workers import Work
from skipstone.store.store import open_store

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as IcebergTable

    from skipstone.serve.tables import TablePlan

_OPEN: Final = 64


def check_name(name: tuple[str, ...], kind: str) -> None:
    """Refuse a name with an empty part, which no namespace or table has."""
    if len(name) < 1 + (kind == "NoSuchTableException") or not all(part.strip() for part in name):
        raise Refusal(404, kind, f"no such name: {'.'.join(name)}")


@dataclass(slots=True)
class _Opened:
    lake: Lake | None = None
    since: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Lakes:
    """Directories by name and the tables of a catalog; a caller never names a path."""

    def __init__(
        self,
        catalog: Catalog | None,
        directories: Mapping[str, str],
        limits: Limits,
        *,
        stay_below_root: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog, self.directories, self._limits = catalog, dict(directories), limits
        self._below, self._options, self._clock = stay_below_root, storage_options, clock
        self._opened: OrderedDict[Hashable, _Opened] = OrderedDict()
        self._lock = threading.Lock()
        for name in self.directories:
            if not name or not name.replace("_", "").replace("-", "").isalnum():
                hint = "use letters, digits, - and _, as in events=/data/events"
                raise UsageError(f"lake name {name!r} is not valid", hint=hint)
            self.directory(name)  # a lake that can't be opened is an error at the start

    @property
    def catalog(self) -> Catalog:
        """The catalog; a server of directories only has none."""
        if self._catalog is None:
            raise Refusal(404, "NoSuchNamespaceException", "server has no catalog")
        return self._catalog

    @property
    def has_catalog(self) -> bool:
        """Whether there are tables."""
        return self._catalog is not None

    def load(self, name: tuple[str, ...]) -> IcebergTable:
        """The current metadata of a table."""
        check_name(name, "NoSuchTableException")
        catalog = self.catalog
        # A server of directories runs without pyiceberg.
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        from skipstone.iceberg.metadata import tolerant

        try:
            return tolerant(lambda: catalog.load_table(name))
        except (NoSuchTableError, NoSuchNamespaceError):
            raise Refusal(404, "NoSuchTableException", f"no such table: {'.'.join(name)}") from None

    def table(self, name: tuple[str, ...]) -> Table:
        """A table at its current snapshot."""
        loaded = self.load(name)

        def make() -> Table:
            return Table(loaded, stay_below_root=self._below, storage_options=self._options)

        # The key names one version of the table; only its index can change.
        lake = self._open((name, loaded.metadata_location), make)
        assert isinstance(lake, Table)
        return lake

    def named_table(self, name: str) -> Table:
        """A table by its dotted name."""
        return self.table(tuple(name.split(".")))

    def directory(self, name: str) -> Lake:
        """A directory as it was listed last."""
        path = self.directories.get(name)
        if path is None:
            raise Refusal(404, "NoSuchLakeException", f"no such lake: {name}")

        def make() -> Lake:
            return Lake(*open_store(path, stay_below_root=self._below, storage_options=self._options))

        return self._open(name, make)

    def _open(self, key: Hashable, make: Callable[[], Lake]) -> Lake:
        """A lake that is not too old. Threads share it; while one opens it again, others use the old one."""
        with self._lock:
            opened = self._opened.setdefault(key, _Opened())
            self._opened.move_to_end(key)
            if len(self._opened) > _OPEN:
                self._opened.popitem(last=False)
        lake = opened.lake
        if lake is not None and self._clock() - opened.since <= self._limits.fresh_seconds:
            return lake
        if not opened.lock.acquire(blocking=lake is None):
            assert lake is not None
            return lake
        try:
            now = self._clock()
            if opened.lake is None or now - opened.since > self._limits.fresh_seconds:
                opened.lake, opened.since = make(), now
                if lake is not None:
                    _release_memory()
            return opened.lake
        finally:
            opened.lock.release()


def _release_memory() -> None:
    """Free lakes that nothing uses and return their memory, which rarely happens by itself."""
    gc.collect()
    # Only glibc has the function, and needs it.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


# -- plans -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class StoredPlan:
    """A plan of a caller: being made, complete, failed or cancelled."""

    id: str
    owner: str
    table: tuple[str, ...]
    since: float
    work: Work[TablePlan]
    is_delivered: bool = False
    """Whether the client has all of it already."""


class Plans:
    """Plans by id, for a time, up to a number; the oldest are dropped."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._plans: OrderedDict[str, StoredPlan] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def add(
        self, caller: Caller, table: tuple[str, ...], work: Work[TablePlan], *, is_delivered: bool = False
    ) -> StoredPlan:
        """Store a plan."""
        key = secrets.token_urlsafe(16)
        plan = StoredPlan(key, caller.name, table, self._clock(), work, is_delivered)
        with self._lock:
            self._plans[plan.id] = plan
            for one in [one for one in self._plans.values() if self._is_old(one)]:
                self._remove(one)
            while len(self._plans) > self._limits.plans:
                self._remove(self._least_missed())
        return plan

    def _least_missed(self) -> StoredPlan:
        """The oldest plan of the caller with the most; complete plans without further pages come first."""
        owner = Counter(one.owner for one in self._plans.values()).most_common(1)[0][0]
        mine = [one for one in self._plans.values() if one.owner == owner]
        return next((one for one in mine if one.is_delivered), mine[0])

    def _remove(self, plan: StoredPlan) -> None:
        self._plans.pop(plan.id, None)
        plan.work.cancel()

    def get(self, caller: Caller, table: tuple[str, ...], plan_id: str) -> StoredPlan:
        """A plan of this caller and table; others are as if they didn't exist."""
        plan = self._plans.get(plan_id)
        if plan is None or self._is_old(plan) or (plan.owner, plan.table) != (caller.name, table):
            raise Refusal(404, "NoSuchPlanIdException", "plan does not exist or has expired")
        return plan

    def drop(self, plan: StoredPlan) -> None:
        """Forget a plan; its work is not started, or ends."""
        with self._lock:
            self._remove(plan)

    def _is_old(self, plan: StoredPlan) -> bool:
        return self._clock() - plan.since > self._limits.plan_seconds
