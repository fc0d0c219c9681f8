"""The files of a snapshot, numbered by manifest, so that a plan reads only the manifests it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec

from skipstone.core.evidence import Array
from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.entries import Entries, ManifestPart, joined, runs, take_rows
from skipstone.iceberg.manifests.lists import HINT, ManifestInfo
from skipstone.store.absolute import plain_spelling
from skipstone.store.store import ListedFile

Load = Callable[[Sequence[ManifestInfo]], list[ManifestPart]]
"""Reads manifests."""

_JOINED = 4


@dataclass(frozen=True, slots=True, eq=False)
class CachedEntries:
    """Cached manifest entries, and the range of each manifest among them."""

    entries: Entries
    ranges: Mapping[Identity, tuple[int, int]]
    counts: Array | None = None
    """Entries per manifest, if these are exactly the snapshot's manifests in order."""


Identity = tuple[Any, ...]


def identities(infos: Sequence[ManifestInfo], specs: Mapping[int, PartitionSpec]) -> list[Identity]:
    """Cache key of each manifest: the manifest, and all that its entries inherit."""
    shapes = {spec_id: str(spec) for spec_id, spec in specs.items()}
    return [
        (n.path, n.length, n.spec_id, shapes.get(n.spec_id, ""), n.sequence, n.snapshot, n.first_row_id)
        for n in infos
    ]


@dataclass(eq=False)
class Inventory:
    """The live files of some manifests, numbered in the order of the manifests."""

    listed: Callable[[], Sequence[ManifestInfo]]
    load: Load
    specs: Mapping[int, PartitionSpec]
    cached: CachedEntries | None = None
    unique: bool = False
    """Whether a duplicate file is an error: the rows of a data file would be doubled."""
    whole: Entries | None = None
    """All files, once they are loaded."""
    _joined: dict[bytes, tuple[Entries, Array]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        if self.cached is not None and self.cached.counts is not None:
            self.whole = self.cached.entries

    @cached_property
    def infos(self) -> Sequence[ManifestInfo]:
        """Entries of the manifest list; not read if all manifests are cached."""
        return self.listed()

    @cached_property
    def firsts(self) -> Array:
        """The number of the first file of each manifest, and one past the last."""
        if self.cached is not None and self.cached.counts is not None:
            return _ends(self.cached.counts)
        counts = [info.live_files for info in self.infos]
        # Only old writers omit the counts.
        missing = [number for number, count in enumerate(counts) if count is None]
        self._need(missing)
        for number in missing:
            counts[number] = len(self._parts[number])
        return _ends(np.array(counts, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def joined(self, manifests: Array) -> tuple[Entries, Array]:
        """The files of some manifests, and their numbers."""
        key = manifests.tobytes()
        result = self._joined.get(key)
        if result is None:
            with self._lock:
                numbers = runs(self.firsts[manifests], self.firsts[manifests + 1])
                result = self._join(manifests, numbers), numbers
            self._joined[key] = result
            for old in list(islice(self._joined, max(len(self._joined) - _JOINED, 0))):
                self._joined.pop(old, None)
        return result

    def _join(self, manifests: Array, numbers: Array) -> Entries:
        if self.whole is None:
            self._need(manifests.tolist())
            if len(self._parts) < len(self.firsts) - 1:
                return self._checked(joined([self._parts[number] for number in manifests.tolist()]), numbers)
            # All are loaded: joined once, so that later queries only take rows.
            whole = joined([self._parts[number] for number in range(len(self._parts))])
            self.whole = self._checked(whole, np.arange(len(whole)))
        return take_rows(self.whole, numbers)

    def _checked(self, entries: Entries, numbers: Array) -> Entries:
        """Return the entries; raise if two of them are the same file."""
        if not self.unique or not len(entries):
            return entries
        names = _normalized(entries.paths)
        if len(names.unique()) < len(names):
            counts = pc.value_counts(names)
            name = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[0]
            indices = np.flatnonzero(pc.equal(names, name))
            owners = np.searchsorted(self.firsts, numbers[indices], side="right") - 1
            one, other = (self.infos[owner].path for owner in owners[:2].tolist())
            raise CorruptFileError(
                "data file is listed twice, which would double its rows: "
                + (f"in manifest {one}" if one == other else f"in manifests {one} and {other}"),
                path=entries.paths[int(indices[0])].as_py(),
                hint=HINT,
            )
        return entries

    @cached_property
    def _parts(self) -> dict[int, ManifestPart]:
        """Loaded manifests by number; initially the cached ones."""
        cached = self.cached
        parts: dict[int, ManifestPart] = {}
        if cached is None or not cached.ranges:
            return parts
        for number, mine in enumerate(identities(self.infos, self.specs)):
            first, last = cached.ranges.get(mine, (-1, -1))
            # A manifest that contradicts the manifest list is read again, which reports the error.
            if first >= 0 and self.infos[number].live_files in (None, last - first):
                parts[number] = ManifestPart(cached.entries, first, last)
        return parts

    @cached_property
    def covered(self) -> bool:
        """Whether every manifest is cached."""
        if self.cached is not None and self.cached.counts is not None:
            return True
        ranges = {} if self.cached is None else self.cached.ranges
        return all(mine in ranges for mine in identities(self.infos, self.specs))

    def parts(self) -> list[Entries]:
        """The entries of each manifest."""
        entries, _ = self.everything
        return [entries.take(np.arange(a, b)) for a, b in pairwise(self.firsts.tolist())]

    @property
    def everything(self) -> tuple[Entries, Array]:
        """All files, and their numbers."""
        return self.joined(np.arange(len(self.firsts) - 1))

    def take(self, files: Array) -> Entries:
        """The numbered files, in that order."""
        if self.whole is not None:
            return take_rows(self.whole, files)
        owners = np.searchsorted(self.firsts, files, side="right") - 1
        needed = np.unique(owners)
        entries, _ = self.joined(needed)
        counts = np.diff(self.firsts)[needed]
        before = np.concatenate(([0], np.cumsum(counts)))[:-1]
        indices = before[np.searchsorted(needed, owners)] + files - self.firsts[owners]
        return take_rows(entries, indices)

    def _need(self, manifests: Sequence[int] | range) -> None:
        missing = [number for number in manifests if number not in self._parts]
        for number, part in zip(missing, self.load([self.infos[n] for n in missing]), strict=True):
            recorded = self.infos[number].live_files
            if recorded is not None and recorded != len(part):
                raise CorruptFileError(
                    f"manifest has {len(part):,} live files, but the manifest list recorded {recorded:,}",
                    path=self.infos[number].path,
                    hint=HINT,
                )
            self._parts[number] = part


def _normalized(paths: pa.Array) -> pa.Array:
    """Paths normalized so that equal files are equal strings; unchanged if all are in plain spelling."""
    first = paths[0].as_py()
    local = next((head for head in ("file:///", "/") if first.startswith(head)), None)
    odd = not pc.all(pc.starts_with(paths, local or f"{first.partition('://')[0]}://")).as_py()
    if local and not odd:
        odd = pc.any(pc.match_substring(paths, "/./")).as_py()
        odd = odd or pc.max(pc.count_substring(paths, "//")).as_py() > local.count("//")
    return pa.array(map(plain_spelling, paths.to_pylist()), paths.type) if odd else paths


def _ends(counts: Array) -> Array:
    ends = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


@dataclass(frozen=True, slots=True, eq=False)
class Listing(Sequence[ListedFile]):
    """The files of an inventory as a listing; without versions, since files of a table never change."""

    inventory: Inventory

    def __len__(self) -> int:
        return len(self.inventory)

    @overload
    def __getitem__(self, number: int) -> ListedFile: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[ListedFile]: ...
    def __getitem__(self, number: int | slice) -> ListedFile | Sequence[ListedFile]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        inventory = self.inventory
        whole = inventory.whole
        if whole is not None:
            return ListedFile(whole.paths[int(number)].as_py(), int(whole.sizes[number]), None)
        owner = int(np.searchsorted(inventory.firsts, number, side="right")) - 1
        entries, _ = inventory.joined(np.array([owner]))
        row = int(number) - int(inventory.firsts[owner])
        return ListedFile(entries.paths[row].as_py(), int(entries.sizes[row]), None)

    def __iter__(self) -> Iterator[ListedFile]:
        entries, _ = self.inventory.everything
        for path, size in zip(entries.paths.to_pylist(), entries.sizes.tolist(), strict=True):
            yield ListedFile(path, size, None)
