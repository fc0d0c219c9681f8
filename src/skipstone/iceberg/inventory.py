"""The files of a snapshot, numbered manifest by manifest, so that a plan reads only manifests it needs."""

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
from skipstone.iceberg.manifests.lists import HINT, ManifestNote
from skipstone.store.absolute import plain_spelling
from skipstone.store.store import ListedFile

Load = Callable[[Sequence[ManifestNote]], list[ManifestPart]]
"""Reads manifests, or finds them where they were read before."""

_JOINED = 4


@dataclass(frozen=True, slots=True, eq=False)
class CachedEntries:
    """Entries of manifests that were read before, and where those of each manifest lie among them."""

    entries: Entries
    ranges: Mapping[Identity, tuple[int, int]]
    counts: Array | None = None
    """How many each manifest of the snapshot has, if these are kept alone, and in their order."""


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

    listed: Callable[[], Sequence[ManifestNote]]
    load: Load
    specs: Mapping[int, PartitionSpec]
    kept: CachedEntries | None = None
    unique: bool = False
    """Whether a file that is named twice is an error: a data file's rows would be doubled."""
    whole: Entries | None = None
    """All files, once they are at hand."""
    _joined: dict[bytes, tuple[Entries, Array]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        if self.kept is not None and self.kept.counts is not None:
            self.whole = self.kept.entries

    @cached_property
    def notes(self) -> Sequence[ManifestNote]:
        """What the manifest list says; where all is kept nobody asks for it."""
        return self.listed()

    @cached_property
    def firsts(self) -> Array:
        """The number of the first file of each manifest, and one past the last."""
        if self.kept is not None and self.kept.counts is not None:
            return _ends(self.kept.counts)
        counts = [note.live_files for note in self.notes]
        # Only old writers leave the counts out.
        unsaid = [number for number, count in enumerate(counts) if count is None]
        self._need(unsaid)
        for number in unsaid:
            counts[number] = len(self._parts[number])
        return _ends(np.array(counts, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def joined(self, manifests: Array) -> tuple[Entries, Array]:
        """The files of some manifests, and their numbers."""
        key = manifests.tobytes()
        found = self._joined.get(key)
        if found is None:
            with self._lock:
                numbers = runs(self.firsts[manifests], self.firsts[manifests + 1])
                found = self._join(manifests, numbers), numbers
            self._joined[key] = found
            for old in list(islice(self._joined, max(len(self._joined) - _JOINED, 0))):
                self._joined.pop(old, None)
        return found

    def _join(self, manifests: Array, numbers: Array) -> Entries:
        if self.whole is None:
            self._need(manifests.tolist())
            if len(self._parts) < len(self.firsts) - 1:
                return self._checked(joined([self._parts[number] for number in manifests.tolist()]), numbers)
            # All are at hand: made one once, of which every later question takes its own.
            whole = joined([self._parts[number] for number in range(len(self._parts))])
            self.whole = self._checked(whole, np.arange(len(whole)))
        return take_rows(self.whole, numbers)

    def _checked(self, entries: Entries, numbers: Array) -> Entries:
        """The same entries; an error if two of them are the same file."""
        if not self.unique or not len(entries):
            return entries
        names = _spelled_alike(entries.paths)
        if len(names.unique()) < len(names):
            counts = pc.value_counts(names)
            name = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[0]
            places = np.flatnonzero(pc.equal(names, name))
            owners = np.searchsorted(self.firsts, numbers[places], side="right") - 1
            one, other = (self.notes[owner].path for owner in owners[:2].tolist())
            raise CorruptFileError(
                "the data file is listed twice, so that its rows would be doubled: by the manifest "
                + (f"{one} alone" if one == other else f"{one} and by {other}"),
                path=entries.paths[int(places[0])].as_py(),
                hint=HINT,
            )
        return entries

    @cached_property
    def _parts(self) -> dict[int, ManifestPart]:
        """The manifests whose entries are at hand: at first those that are kept."""
        kept = self.kept
        found: dict[int, ManifestPart] = {}
        if kept is None or not kept.ranges:
            return found
        for number, mine in enumerate(identities(self.notes, self.specs)):
            first, last = kept.ranges.get(mine, (-1, -1))
            # What doesn't fit the list of manifests is read again, which tells what is wrong.
            if first >= 0 and self.notes[number].live_files in (None, last - first):
                found[number] = ManifestPart(kept.entries, first, last)
        return found

    @cached_property
    def covered(self) -> bool:
        """Whether every manifest was kept."""
        if self.kept is not None and self.kept.counts is not None:
            return True
        known = {} if self.kept is None else self.kept.ranges
        return all(mine in known for mine in identities(self.notes, self.specs))

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
        places = before[np.searchsorted(needed, owners)] + files - self.firsts[owners]
        return take_rows(entries, places)

    def _need(self, manifests: Sequence[int] | range) -> None:
        missing = [number for number in manifests if number not in self._parts]
        for number, part in zip(missing, self.load([self.notes[n] for n in missing]), strict=True):
            said = self.notes[number].live_files
            if said is not None and said != len(part):
                raise CorruptFileError(
                    f"the manifest has {len(part):,} live files, and the manifest list says {said:,}",
                    path=self.notes[number].path,
                    hint=HINT,
                )
            self._parts[number] = part


def _spelled_alike(paths: pa.Array) -> pa.Array:
    """The paths, equal where they mean the same file: as they are, unless some are spelled oddly."""
    first = paths[0].as_py()
    local = next((head for head in ("file:///", "/") if first.startswith(head)), None)
    odd = not pc.all(pc.starts_with(paths, local or f"{first.partition('://')[0]}://")).as_py()
    if local and not odd:
        odd = pc.any(pc.match_substring(paths, "/./")).as_py()
        odd = odd or pc.max(pc.count_substring(paths, "//")).as_py() > local.count("//")
    return pa.array(map(plain_spelling, paths.to_pylist()), paths.type) if odd else paths


def _ends(counts: Array) -> Array:
    found = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=found[1:])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Listing(Sequence[ListedFile]):
    """The files of an inventory as a listing. They have no versions, since files of a table never change."""

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
        owner = int(np.searchsorted(inventory.firsts, number, side="right")) - 1
        entries, _ = inventory.joined(np.array([owner]))
        place = int(number) - int(inventory.firsts[owner])
        return ListedFile(entries.paths[place].as_py(), int(entries.sizes[place]), None)

    def __iter__(self) -> Iterator[ListedFile]:
        entries, _ = self.inventory.everything
        for path, size in zip(entries.paths.to_pylist(), entries.sizes.tolist(), strict=True):
            yield ListedFile(path, size, None)
