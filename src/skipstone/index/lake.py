"""A lake with an index beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.errors import UsageError
from skipstone.index.container import BadIndex
from skipstone.index.coverage import Coverage
from skipstone.index.index import LakeIndex
from skipstone.lake.base import BaseLake
from skipstone.lake.directory import DirectoryLake, is_visible
from skipstone.lake.files import Io
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.survey import Part, Survey
from skipstone.store.place import Listed, Place


class Indexed(BaseLake):
    """A lake whose footers need not be opened where its index knows them."""

    _index_root: Place | None

    def _reset(self) -> None:
        """The files are others than before."""
        self.__dict__.pop("_numbers", None)
        self._access.recorded = self._recorded
        if "index" in self.__dict__:
            self.index.relisted()

    @cached_property
    def index(self) -> LakeIndex:
        """The lake's index: what it holds, and how to build, refresh and drop it."""
        return LakeIndex(self, self._index_root)

    @property
    def io(self) -> Io:
        """Requests made and bytes read through this lake so far, those of its index included."""
        return self._access.io() + self.index.access.io()

    def _recorded(self, entry: Listed) -> ParquetMetadata | None:
        coverage = self.index.coverage
        number = None if coverage is None else self._numbers.get(entry)
        if coverage is None or number is None:
            return None
        try:
            return coverage.metadata(number)
        except BadIndex as error:
            self.index.distrust(error)
            return None

    @cached_property
    def _numbers(self) -> dict[Listed, int]:
        return {entry: number for number, entry in enumerate(self.entries)}

    def surveyed(
        self, coverage: Coverage, known: Sequence[tuple[int, Array]], unknown: Array
    ) -> tuple[Survey, Array]:
        """Files of segments, and others from their footers, with their numbers in the listing."""
        self.check_index()
        parts: list[Part] = [coverage.part(segment, rows) for segment, rows in known]
        numbers = [coverage.files_of(segment, rows) for segment, rows in known]
        if len(unknown):
            parts.append(self.footers(unknown))
            numbers.append(unknown)
        chosen = np.concatenate([unknown[:0], *numbers])
        return Survey.joined(parts, self.stated(chosen)), chosen

    def check_index(self) -> None:
        """Refuse files of the index whose columns can't be read as the lake's."""

    def index_changed(self) -> None:
        """The index was built or refreshed."""


class IndexedLake(Indexed, DirectoryLake):
    """A directory of Parquet files with an index."""

    def __init__(self, place: Place, pattern: str = "", *, index_root: Place | None = None, **options: Any):
        _check_apart(place, index_root)
        self._index_root = index_root
        super().__init__(place, pattern, **options)

    def _pin(self, entries: tuple[Listed, ...]) -> None:
        super()._pin(entries)
        self.__dict__.pop("_fits", None)
        self._reset()

    def _sample(self) -> list[ParquetMetadata]:
        """One file of every kind that the index knows, and some of those it doesn't."""
        coverage = self.index.coverage
        if coverage is None or not coverage.covered:
            return super()._sample()
        try:
            known = coverage.kinds()
        except BadIndex as error:
            self.index.distrust(error)
            return self._sample()
        unknown = [self._entries[number] for number in coverage.unknown.tolist()]
        return [*known, *(self._spread(unknown, needed=False) if unknown else ())]

    @cached_property
    def _fits(self) -> bool:
        """Whether what the index knows fits the schema that the lake was opened with; an error if not."""
        coverage = self.index.coverage
        if self._given is not None and coverage is not None:
            self.check(coverage.kinds())
        return True

    def check_index(self) -> None:
        """Refuse files of the index whose columns can't be read as the lake's."""
        assert self._fits

    def __reduce__(self) -> tuple[Any, ...]:
        listing = (self._access, self._pattern, self._given, self._entries, self._others)
        changed = "index" in self.__dict__ and self.index.changed
        return (_moved, (type(self), *listing, self._index_root, changed))


def _moved(
    cls: type[IndexedLake],
    access: Any,
    pattern: str,
    schema: pa.Schema | None,
    entries: tuple[Listed, ...],
    others: tuple[Listed, ...],
    root: Place | None,
    changed: bool,
) -> IndexedLake:
    lake = cls.__new__(cls)
    lake._access, lake._pattern, lake._given, lake._others = access, pattern, schema, others
    lake._index_root = root
    lake._pin(entries)
    lake.__dict__["index"] = LakeIndex(lake, root, changed=changed)
    return lake


def _check_apart(lake: Place, root: Place | None) -> None:
    """Refuse to put an index among the files of its lake, which would take it for data."""
    if root is None or not f"{root.uri}/".startswith(f"{lake.uri}/"):
        return
    below = root.uri.removeprefix(lake.uri).strip("/")
    if is_visible(Listed(f"{below}/x".lstrip("/"), 1, None)):
        raise UsageError(
            f"the index would be a part of the lake {lake.uri}",
            path=root.uri,
            hint="put it outside the lake, or in a directory whose name begins with _",
        )
