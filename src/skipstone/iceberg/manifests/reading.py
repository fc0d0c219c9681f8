"""Manifests: live entries in columns, with what they inherit, read together and once per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from pyiceberg.partitioning import PartitionSpec

from skipstone.engine.jobs import gather
from skipstone.errors import CorruptFileError, SchemaError
from skipstone.iceberg.manifests.avro import Container, Headers, read_container
from skipstone.iceberg.manifests.batches import Part, joined
from skipstone.iceberg.manifests.codecs import AvroError
from skipstone.iceberg.manifests.decode import decode, slicer_of
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.manifests.notes import (
    HINT,
    ManifestNote,
    PartitionSummary,
    read_manifest_list,
)
from skipstone.store.cache import Cache

__all__ = [
    "ManifestNote",
    "Manifests",
    "PartitionSummary",
    "clear_cache",
    "read_manifest",
    "read_manifest_list",
]

_CACHE_BYTES = 512 << 20
# Manifests as written that are fetched side by side, before any of them is looked into.
_FETCHED_BYTES = 64 << 20
# Some thousand entries: more together are read no faster, and stay as long as one manifest of them does.
_BATCH_BYTES = 1 << 20

_Body = tuple[ManifestNote, bytes]
_Opened = tuple[ManifestNote, Container]


def read_manifest(data: bytes, note: ManifestNote, specs: Mapping[int, PartitionSpec]) -> Entries:
    """The live entries of a manifest, with what they inherit from its note."""
    return _read_batch([(note, data)], specs)[0].entries


def _read_batch(bodies: Sequence[_Body], specs: Mapping[int, PartitionSpec]) -> list[Part]:
    """The live entries of manifests, those of one schema and one spec together."""
    headers = Headers()
    groups: dict[tuple[int, bytes], list[int]] = {}
    opened: list[_Opened] = []
    for number, (note, data) in enumerate(bodies):
        if note.spec_id not in specs:
            raise _unknown_spec(note, specs)
        if note.added_files is None and len(data) < note.length:
            # Where files are counted, the count tells; sizes alone are not worth a refusal.
            raise _corrupt(note, f"it is cut short: {len(data):,} of {note.length:,} bytes are there")
        try:
            container = read_container(data, headers)
            groups.setdefault((note.spec_id, container.schema), []).append(number)
        except (AvroError, RecursionError) as error:
            raise _corrupt(note, error) from None
        opened.append((note, container))
    found: dict[int, Part] = {}
    for (spec_id, _), numbers in groups.items():
        parts = _decode([opened[number] for number in numbers], specs[spec_id])
        found |= zip(numbers, parts, strict=True)
    return [found[number] for number in range(len(bodies))]


def _decode(opened: Sequence[_Opened], spec: PartitionSpec) -> list[Part]:
    notes, containers = zip(*opened, strict=True)
    try:
        entries, counts = decode(containers, notes, spec)
    except (AvroError, RecursionError) as error:
        if len(opened) == 1:
            raise _corrupt(notes[0], error) from None
        # One by one, to tell which of them it is.
        return [part for one in opened for part in _decode([one], spec)]
    stops = np.cumsum(counts)
    spans = zip((stops - counts).tolist(), stops.tolist(), strict=True)
    return [Part(entries, start, stop) for start, stop in spans]


def _corrupt(note: ManifestNote, error: Exception | str) -> CorruptFileError:
    return CorruptFileError(f"the manifest can't be read: {error}", path=note.path, hint=HINT)


def _unknown_spec(note: ManifestNote, specs: Mapping[int, PartitionSpec]) -> SchemaError:
    known = ", ".join(map(str, sorted(specs))) or "none"
    return SchemaError(
        f"the manifest's partition spec {note.spec_id} is not in the table's metadata (known: {known})",
        path=note.path,
        unit=f"partition spec {note.spec_id}",
        hint="the table's metadata is damaged or of another table",
    )


# -- many manifests ----------------------------------------------------------------------------

_cache: Cache[tuple[Any, ...], Part] = Cache(_CACHE_BYTES)


class Manifests:
    """Reads manifests side by side; what was read stays in the process, as manifests never change."""

    def __init__(
        self, read: Callable[[str], bytes], specs: Mapping[int, PartitionSpec], *, threads: int = 8
    ) -> None:
        self._read = read
        self._specs = specs
        self._threads = threads
        self._shapes = {spec_id: str(spec) for spec_id, spec in specs.items()}

    def entries(self, notes: Sequence[ManifestNote]) -> Entries:
        """The live entries of all these manifests as one, in the order of the notes."""
        return joined(self.each(notes))

    def each(self, notes: Sequence[ManifestNote]) -> list[Part]:
        """The live entries of each of these manifests."""
        names = [self._name(note) for note in notes]
        found = {name: part for name in names if (part := _cache.get(name)) is not None}
        missing = {name: note for name, note in zip(names, notes, strict=True) if name not in found}
        parts = self._fresh([*missing.values()])
        batch, weight = None, 0.0
        for name, part in zip(missing, parts, strict=True):
            if part.batch is not batch:
                batch, weight = part.batch, part.batch.nbytes / max(len(part.batch), 1)
            _cache.put(name, part, 1000 + int(weight * len(part)))
            found[name] = part
        return [found[name] for name in names]

    def _fresh(self, notes: Sequence[ManifestNote]) -> Iterator[Part]:
        for some in _portions(notes, _FETCHED_BYTES):
            data = gather(self._read, [note.path for note in some], threads=self._threads)
            known = dict(zip(some, data, strict=True))
            batches = [[(note, known[note]) for note in batch] for batch in _portions(some, _BATCH_BYTES)]
            read = gather(lambda batch: _read_batch(batch, self._specs), batches, threads=self._threads)
            yield from chain.from_iterable(read)

    def _name(self, note: ManifestNote) -> tuple[Any, ...]:
        # A path alone doesn't say what an entry inherits, nor what a reused spec id means.
        inherited = (note.sequence, note.snapshot, note.first_row_id, note.content)
        return (note.path, note.length, note.spec_id, self._shapes.get(note.spec_id), *inherited)


def _portions(notes: Sequence[ManifestNote], size: int) -> Iterator[Sequence[ManifestNote]]:
    """Runs of manifests that have no more bytes together, or one manifest."""
    first = total = 0
    for number, note in enumerate(notes):
        total += note.length
        if total > size and number > first:
            yield notes[first:number]
            first, total = number, note.length
    if first < len(notes):
        yield notes[first:]


def clear_cache() -> None:
    """Forget every manifest that was read, and what was learnt from them about their schemas."""
    _cache.clear()
    slicer_of.cache_clear()
