"""The files of a snapshot, numbered manifest by manifest, so that a plan reads only manifests it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, overload

import numpy as np
from pyiceberg.partitioning import PartitionSpec

from skipstone.errors import CorruptFileError
from skipstone.evidence import Array
from skipstone.lake.iceberg.entries import Entries
from skipstone.lake.iceberg.manifests import ManifestNote
from skipstone.store.place import Listed

Load = Callable[[Sequence[ManifestNote]], list[Entries]]
"""Reads manifests, or finds them where they were read before."""

_JOINED = 4


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Entries of manifests that were read before, and where those of each manifest lie among them."""

    entries: Entries
    ranges: Mapping[Identity, tuple[int, int]]


Identity = tuple[Any, ...]


def identities(notes: Sequence[ManifestNote], specs: Mapping[int, PartitionSpec]) -> list[Identity]:
    """Of each manifest, what tells it, and what its entries inherit, from every other."""
    shapes = {spec_id: str(spec) for spec_id, spec in specs.items()}
    return [
        (n.path, n.length, n.spec_id, shapes.get(n.spec_id, ""), n.sequence, n.snapshot, n.first_row_id)
        for n in notes
    ]


@dataclass(eq=False)
class Inventory:
    """The live files of some manifests. A file's number is its place among them, manifest after manifest."""

    notes: Sequence[ManifestNote]
    load: Load
    specs: Mapping[int, PartitionSpec]
    kept: Kept | None = None
    _parts: dict[int, Entries] = field(default_factory=dict)
    _joined: dict[bytes, tuple[Entries, Array]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def firsts(self) -> Array:
        """The number of the first file of each manifest, and one past the last."""
        counts = [_live(note) for note in self.notes]
        if None in counts:
            # Only old writers leave the counts out.
            self._need(range(len(self.notes)))
            counts = [len(self._parts[number]) for number in range(len(self.notes))]
        found = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(np.array(counts, dtype=np.int64), out=found[1:])
        return found

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def joined(self, manifests: Array) -> tuple[Entries, Array]:
        """The files of some manifests, and their numbers."""
        key = manifests.tobytes()
        found = self._joined.get(key)
        if found is None:
            with self._lock:
                entries = self._join(manifests)
            spans = [np.arange(self.firsts[m], self.firsts[m + 1]) for m in manifests.tolist()]
            found = entries, np.concatenate([np.zeros(0, dtype=np.int64), *spans])
            self._joined[key] = found
            for old in list(islice(self._joined, max(len(self._joined) - _JOINED, 0))):
                self._joined.pop(old, None)
        return found

    def _join(self, manifests: Array) -> Entries:
        """Entries of some manifests, those that are kept in one piece where they lie so."""
        known = self._kept[manifests]
        stored = known[:, 0] >= 0
        if self.kept is None or not stored.any():
            self._need(manifests.tolist())
            return Entries.concat([self._parts[number] for number in manifests.tolist()])
        rows = _runs(known[stored, 0], known[stored, 1])
        whole = len(rows) == len(self.kept.entries) and bool((rows == np.arange(len(rows))).all())
        found = self.kept.entries if whole else self.kept.entries.take(rows)
        if stored.all():
            return found
        others = manifests[~stored]
        self._need(others.tolist())
        joined = Entries.concat([found, *(self._parts[number] for number in others.tolist())])
        # Back in the order of the manifests.
        order = np.concatenate([manifests[stored], others])
        counts = np.diff(self.firsts)
        firsts = np.cumsum(counts[order]) - counts[order]
        back = np.argsort(order, kind="stable")
        return joined.take(_runs(firsts[back], (firsts + counts[order])[back]))

    @cached_property
    def _kept(self) -> Array:
        """Per manifest where its entries lie among the kept ones; -1 where they don't."""
        ranges = {} if self.kept is None else self.kept.ranges
        if not ranges:
            return np.full((len(self.notes), 2), -1, dtype=np.int64)
        found = [ranges.get(mine, (-1, -1)) for mine in identities(self.notes, self.specs)]
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    @property
    def covered(self) -> bool:
        """Whether every manifest is kept."""
        return bool((self._kept[:, 0] >= 0).all())

    def parts(self) -> list[Entries]:
        """The entries of each manifest."""
        entries, _ = self.everything
        return [entries.take(np.arange(a, b)) for a, b in pairwise(self.firsts.tolist())]

    @property
    def everything(self) -> tuple[Entries, Array]:
        """All files, and their numbers."""
        return self.joined(np.arange(len(self.notes)))

    def take(self, files: Array) -> Entries:
        """The numbered files, in that order."""
        owners = np.searchsorted(self.firsts, files, side="right") - 1
        needed = np.unique(owners)
        entries, _ = self.joined(needed)
        counts = np.diff(self.firsts)[needed]
        before = np.concatenate(([0], np.cumsum(counts)))[:-1]
        places = before[np.searchsorted(needed, owners)] + files - self.firsts[owners]
        return entries.take(places)

    def _need(self, manifests: Sequence[int] | range) -> None:
        missing = [number for number in manifests if number not in self._parts]
        for number, part in zip(missing, self.load([self.notes[n] for n in missing]), strict=True):
            said = _live(self.notes[number])
            if said is not None and said != len(part):
                raise CorruptFileError(
                    f"it has {len(part):,} live files, and the manifest list says {said:,}",
                    path=self.notes[number].path,
                )
            self._parts[number] = part


def _runs(starts: Array, stops: Array) -> Array:
    """The numbers from each start to its stop, one run after the other."""
    counts = stops - starts
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(stops - ends, counts)


def _live(note: ManifestNote) -> int | None:
    if note.added_files is None or note.existing_files is None:
        return None
    return note.added_files + note.existing_files


@dataclass(frozen=True, slots=True, eq=False)
class Listing(Sequence[Listed]):
    """The files of an inventory as a listing. They have no versions, since files of a table never change."""

    inventory: Inventory

    def __len__(self) -> int:
        return len(self.inventory)

    @overload
    def __getitem__(self, number: int) -> Listed: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Listed]: ...
    def __getitem__(self, number: int | slice) -> Listed | Sequence[Listed]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        inventory = self.inventory
        owner = int(np.searchsorted(inventory.firsts, number, side="right")) - 1
        entries, _ = inventory.joined(np.array([owner]))
        place = int(number) - int(inventory.firsts[owner])
        return Listed(entries.paths[place].as_py(), int(entries.sizes[place]), None)

    def __iter__(self) -> Iterator[Listed]:
        entries, _ = self.inventory.everything
        for path, size in zip(entries.paths.to_pylist(), entries.sizes.tolist(), strict=True):
            yield Listed(path, size, None)
