"""What is deleted of data files: read for those a plan keeps, and for no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.iceberg.deletes.equality import EqualityDeletes
from skipstone.iceberg.deletes.index import DeleteFile, DeleteIndex, Facts, Matched
from skipstone.iceberg.deletes.positions import deleted_rows, read_positions
from skipstone.iceberg.deletes.puffin import read_vector
from skipstone.iceberg.manifests.entries import Entries
from skipstone.lake.base import AntiJoin, Deletions, Path
from skipstone.lake.files import Files
from skipstone.store.place import Listed
from skipstone.store.source import Source


@dataclass(frozen=True, slots=True)
class DeletedValues(AntiJoin):
    """Equality deletes as they bear on a data file of one sequence number."""

    deletes: EqualityDeletes
    sequence: int

    @property
    def columns(self) -> tuple[Path, ...]:
        """The columns that are compared."""
        return self.deletes.columns

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Their types."""
        return self.deletes.types

    def deleted(self, table: pa.Table, files: Files, places: Callable[[], Array]) -> Array:  # noqa: ARG002
        """Per row, whether a newer delete has its values."""
        keys = self.deletes.load(_opener(files), threads=files.threads, cache=files.cache)
        return keys.mask(table, self.sequence)


Column = Callable[[int], tuple[Path, pa.DataType]]
"""The lake's name and type of a field, by its id."""


def deletions(
    index: DeleteIndex, data: Entries, numbers: Sequence[int], files: Files, facts: Facts, column: Column
) -> Deletions:
    """What is deleted of data files, by their numbers in the lake."""
    matched = index.match(data, facts)
    touched = np.flatnonzero(matched.touched)
    used = (matched.positions.numbers, matched.equalities.numbers, matched.vectors[matched.vectors >= 0])
    return Deletions(
        _rows(matched, touched, numbers, files),
        _values(matched, touched, numbers, column),
        len(matched.deletes),
        len(np.unique(np.concatenate(used))),
    )


def _rows(matched: Matched, touched: Array, numbers: Sequence[int], files: Files) -> Mapping[int, RowSet]:
    opened = _opener(files)
    found: dict[int, RowSet] = {}
    data = matched.data
    vectors = touched[matched.vectors[touched] >= 0]
    wanted = [matched.file(int(number)) for number in matched.vectors[vectors].tolist()]
    bitmaps = gather(lambda file: read_vector(file, opened), wanted, threads=files.threads)
    for unit, bitmap in zip(vectors.tolist(), bitmaps, strict=True):
        found[numbers[unit]] = deleted_rows(int(data.rows[unit]), bitmap)
    positions = read_positions(matched.position_needs(touched), opened, threads=files.threads)
    if positions:
        by_position = touched[matched.positions.counts[touched] > 0]
        paths = data.paths.take(pa.array(by_position)).to_pylist()
        for unit, path in zip(by_position.tolist(), paths, strict=True):
            if path in positions:
                found[numbers[unit]] = deleted_rows(int(data.rows[unit]), positions[path])
    return found


def _values(
    matched: Matched, touched: Array, numbers: Sequence[int], column: Column
) -> Mapping[int, tuple[AntiJoin, ...]]:
    units = touched[matched.equalities.counts[touched] > 0]
    sets, members = matched.equality_sets(units)
    made = []
    for one in sets:
        placed = [column(number) for number in one.ids]
        columns, types = tuple(path for path, _ in placed), tuple(type for _, type in placed)
        made.append(EqualityDeletes(one.ids, columns, types, one.files))
    sequences = matched.data.sequences[units].tolist()
    return {
        numbers[unit]: tuple(DeletedValues(made[at], sequence) for at in mine)
        for unit, mine, sequence in zip(units.tolist(), members, sequences, strict=True)
    }


def _opener(files: Files) -> Callable[[DeleteFile], Source]:
    return lambda file: files.source(Listed(file.path, file.size, None))
