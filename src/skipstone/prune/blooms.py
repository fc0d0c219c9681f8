"""Extra evidence that can only rule out TRUE: bloom filters, and complete dictionaries.

Filters are asked of the row groups still open: few keys read a block of each filter, many the whole filter.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from skipstone.core.domain.keys import Key
from skipstone.core.domain.spans import NumberSpans
from skipstone.core.evidence import Array, Evidence
from skipstone.core.ir.nodes import Leaf, Node
from skipstone.core.ir.transforms import Same
from skipstone.core.judge import Exclusions, Verdict, judge
from skipstone.parquet.bloom import (
    BadBloom,
    BlockProbe,
    BloomFilter,
    bloom_length,
    bloom_range,
    has_bloom,
    hash_values,
    parse_bloom,
    probe,
)
from skipstone.parquet.evidence import BoundLeaf, find_leaf
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.values import decode_keys, encode_key
from skipstone.prune.survey import BloomRequest, Fetch, Need, PruneOptions, RuledOut, Survey, Unusable
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange

# Whole filters are fetched in portions of about this many bytes, so that many big ones fit in memory.
_PORTION = 64 * 1024 * 1024
# Longer filters than this are not worth their room in the cache.
_KEPT = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A leaf that is TRUE just for stored values, and (for blooms) the hashes of those values."""

    node: Leaf
    bound: BoundLeaf
    hashes: Array | None = None


def stored_values(node: Node, metadata: ParquetMetadata) -> list[Probe]:
    """Leaves whose TRUE values are values of the column itself, in the form the file stores."""
    return [Probe(leaf, bound) for leaf, bound in _stored(node, metadata)]


def _stored(node: Node, metadata: ParquetMetadata) -> list[tuple[Leaf, BoundLeaf]]:
    found = []
    for leaf in (node,) if isinstance(node, Leaf) else node.leaves():
        true = leaf.true
        if leaf.ref.via or true.nulls or true.nans or true.spans.is_all:
            continue
        bound = find_leaf(metadata, leaf.ref)
        if bound is not None and all([isinstance(step, Same) for step in bound.steps]):  # noqa: C419
            found.append((leaf, bound))
    return found


_LONGEST_RUN = 256
"""Neighbouring integers up to this many are looked up one by one."""

Hashes = dict[tuple[object, ...], Array | None]
"""Hashes of a leaf's values by the way a file stores them: most files of a lake store them alike."""


def bloom_probes(
    node: Node, metadata: ParquetMetadata, max_keys: int, known: Hashes | None = None
) -> list[Probe]:
    """Leaves that ask for a short list of values, with their hashes; ``known`` spares hashing again."""
    probes = []
    for leaf, bound in _stored(node, metadata):
        stored = bound.leaf
        if known is None:
            hashes = _hashes(leaf, stored, max_keys)
        else:
            key = (id(leaf), stored.physical, stored.type_length, stored.logical)
            if key not in known:
                known[key] = _hashes(leaf, stored, max_keys)
            hashes = known[key]
        if hashes is not None:
            probes.append(Probe(leaf, bound, hashes))
    return probes


def _hashes(leaf: Leaf, stored: LeafColumn, max_keys: int) -> Array | None:
    span = leaf.span
    low, high = (0, 1) if span is None else (span[0].item(), span[1].item())
    if not high - low < _LONGEST_RUN:
        return None  # one of so many values is nearly always there, if only by a filter's mistake
    plain: Sequence[Key]
    if low == high:
        plain = [low]
    else:
        if len(leaf.true.spans) > max_keys:
            return None
        keys = leaf.true.spans.points()
        if keys is None or not 0 < len(keys) <= max_keys:
            return None  # without a value to look up, the leaf's own bits have said it all
        plain = keys if isinstance(keys, list) else keys.tolist()
    encoded = [encode_key(stored, key) for key in plain]
    if None in encoded:
        return None
    hashes = hash_values([value for e in encoded if e for value in e])
    return hashes if len(hashes) else None  # values that the file's type can't hold have no hash


def useful_units(node: Node, evidence: Evidence, units: Array, best: Exclusions) -> Array:
    """Of ``units``, those that would be dropped if every probe in ``best`` came back empty."""
    if not best or not len(units):
        return units[:0]
    cleared = {leaf: absent[units] for leaf, absent in best.items()}
    return units[~judge(node, evidence.take(units), cleared).bits.true]


def absent_by_dictionary(found: Probe, values: Array | list[bytes]) -> bool:
    """Whether no value of the dictionary belongs to the leaf's TRUE set."""
    raw = values if isinstance(values, list) else [v.tobytes() for v in values]
    keys, ok = decode_keys(found.bound.leaf, raw)
    spans = found.node.true.spans
    numbers = isinstance(keys, list) or keys.dtype.kind != "f"
    if numbers and not ok.all():
        return False  # a value that can't be decoded could be any; among floats it is just NaN
    if isinstance(keys, list):
        return not any(good and spans.contains(k) for k, good in zip(keys, ok, strict=True) if k is not None)
    assert isinstance(spans, NumberSpans)
    # NaN in a dictionary is no match: stored_values() lets no leaf in that is TRUE for NaN.
    keys = keys[ok]
    at = np.searchsorted(spans.highs, keys, side="left")
    inside = (
        (at < len(spans)) & (spans.lows[np.minimum(at, len(spans) - 1)] <= keys) if len(spans) else at < 0
    )
    return not bool(np.any(inside))


# -- filters to read ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    """One filter to consult: of a probe's column in a row group."""

    unit: int
    probe: Probe
    hashes: Array


@dataclass(frozen=True, slots=True, eq=False)
class _FileFilter:
    """A filter that the file has: where it is, and how it is read."""

    lookup: _Lookup
    whole: ByteRange
    blocks: BlockProbe | None

    @property
    def ranges(self) -> list[ByteRange]:
        return [self.whole] if self.blocks is None else self.blocks.ranges(self.whole.start)


@dataclass(frozen=True, slots=True, eq=False)
class Blooms:
    """Consults the filters that could drop a row group which is still open.

    Without a ``cache`` as little of a filter is read as the look-up needs. With one, filters are read whole
    (nearby ranges share a request anyway) and kept: the next look-up reads nothing.
    """

    survey: Survey
    node: Node
    options: PruneOptions
    unusable: Unusable
    cache: Cache[Any, Any] | None
    silent: list[tuple[int, Leaf]] = field(default_factory=list)
    """Row groups and leaves whose filter was read and may hold a value."""

    def absent(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], RuledOut]:
        """Where the values of the predicate's leaves are proven absent."""
        units = np.flatnonzero(verdicts == Verdict.SOME)
        known = RuledOut({}, {}, settled=False)
        if self.options.bloom_provider is None:
            known, units = self.survey.absent(self.node, units, self.options.max_bloom_keys)
            if known.settled:
                return known
        masks = known.groups
        lookups = self._lookups(evidence, units)
        present = yield from (self._provided(lookups) if self.options.bloom_provider else self._own(lookups))
        for found in lookups:
            if id(found) in present and present[id(found)]:
                self.silent.append((found.unit, found.probe.node))
            if not present.get(id(found), True):
                mask = masks.setdefault(id(found.probe.node), np.zeros(len(self.survey), dtype=bool))
                mask[found.unit] = True
        return known

    def _lookups(self, evidence: Evidence, open_units: Array) -> list[_Lookup]:
        """The filters that could drop a row group, whether or not the files have them."""
        survey = self.survey
        known: Hashes = {}
        best: dict[int, Array] = {}
        probes: dict[int, list[Probe]] = {}
        alike: dict[int, list[Probe]] = {}
        for file in np.unique(survey.owners[open_units]).tolist():
            footer = survey.metadata(file)
            found = alike.get(id(footer.kin))
            if found is None:
                found = bloom_probes(self.node, footer, self.options.max_bloom_keys, known)
                alike[id(footer.kin)] = found
            probes[file] = [one for one in found if self._may_help(file, one)]
            for one in probes[file]:
                if id(one.node) not in best:
                    best[id(one.node)] = np.zeros(len(survey), dtype=bool)
                best[id(one.node)][survey.units(file)] = True
        return [
            _Lookup(unit, one, one.hashes)
            for unit in useful_units(self.node, evidence, open_units, best).tolist()
            for one in probes[int(survey.owners[unit])]
            if one.hashes is not None
        ]

    def _may_help(self, file: int, probe: Probe) -> bool:
        """Whether there can be a filter: a partition's value has none, nor has a column written without."""
        if self.survey.gives(probe.bound.ref.path):
            return False
        return self.options.bloom_provider is not None or has_bloom(
            self.survey.metadata(file), probe.bound.leaf.index
        )

    def _provided(self, lookups: Sequence[_Lookup]) -> Generator[Need, list[Any], dict[int, bool]]:
        if not lookups:
            return {}
        filters = yield [self._request(found) for found in lookups]
        # A filter that isn't there says nothing.
        return _present((f, b) for f, b in zip(lookups, filters, strict=True) if b is not None)

    def _request(self, found: _Lookup) -> BloomRequest:
        file, group = self.survey.file(found.unit), int(self.survey.numbers[found.unit])
        return BloomRequest(file.path, group, found.probe.bound.ref.path, found.probe.bound.leaf.index)

    def _own(self, lookups: Sequence[_Lookup]) -> Generator[Need, list[Any], dict[int, bool]]:
        kept: list[tuple[_Lookup, BloomFilter]] = []
        missing: list[_Lookup] = []
        for found in lookups:
            known = self.cache.get(self._key(found)) if self.cache is not None else None
            if known is None:
                missing.append(found)
            else:
                kept.append((found, known))
        present = _present(kept)
        for portion in _portions(self._placed(missing)):
            present |= yield from self._fetched(portion)
        return present

    def _key(self, found: _Lookup) -> tuple[Any, ...]:
        file = self.survey.file(found.unit)
        group, leaf = int(self.survey.numbers[found.unit]), found.probe.bound.leaf.index
        return (BloomFilter, file.identity, group, leaf)

    def _placed(self, lookups: Iterable[_Lookup]) -> Generator[_FileFilter]:
        """The filters that the files have, with the way to read each."""
        known: dict[tuple[int, int], BlockProbe | None] = {}
        for found in lookups:
            file, group = self.survey.file(found.unit), int(self.survey.numbers[found.unit])
            try:
                whole = bloom_range(file, group, found.probe.bound.leaf.index)
            except BadBloom as error:
                self._bad(found, error)
                continue
            if whole is None:
                continue
            key = (id(found.hashes), whole.length)
            if key not in known:
                blocks = self.cache is None or whole.length > _KEPT
                known[key] = BlockProbe.of(whole.length, found.hashes) if blocks else None
            yield _FileFilter(found, whole, known[key])

    def _bad(self, found: _Lookup, error: BadBloom) -> None:
        self.unusable(found.unit, found.probe.bound.ref.path, "bloom filter", error.reason)

    def _fetched(self, filters: Sequence[_FileFilter]) -> Generator[Need, list[Any], dict[int, bool]]:
        """Whether each filter may contain one of its values, by the look-up's ``id``; silent on a bad one."""
        wanted = [(int(self.survey.owners[found.lookup.unit]), found.ranges) for found in filters]
        bodies = iter((yield [Fetch(file, r) for file, ranges in wanted for r in ranges]))
        whole: list[tuple[_Lookup, BloomFilter]] = []
        blocks: dict[int, list[tuple[_FileFilter, list[bytes]]]] = {}
        for found, (_, ranges) in zip(filters, wanted, strict=True):
            mine = list(islice(bodies, len(ranges)))
            try:
                if found.blocks is None:
                    bloom = yield from self._parse(found, mine[0])
                    whole.append((found.lookup, bloom))
                    if self.cache is not None:
                        self.cache.put(self._key(found.lookup), bloom, bloom.blocks.nbytes)
                else:
                    found.blocks.check(mine[0])
                    blocks.setdefault(id(found.blocks), []).append((found, mine[1:]))
            except BadBloom as error:
                self._bad(found.lookup, error)
        present = _present(whole)
        for alike in blocks.values():
            some = alike[0][0].blocks
            assert some is not None
            hits = some.might_contain([body for _, mine in alike for body in mine])
            present.update((id(found.lookup), bool(hit)) for (found, _), hit in zip(alike, hits, strict=True))
        return present

    def _parse(self, found: _FileFilter, body: bytes) -> Generator[Need, list[Any], BloomFilter]:
        length = bloom_length(body)
        if length > len(body):  # the writer left the length out and the first piece was too short
            stop = found.whole.start + length
            size = self.survey.file(found.lookup.unit).size
            if size is not None and stop > size:
                raise BadBloom("the filter ends outside the file")
            owner = int(self.survey.owners[found.lookup.unit])
            (body,) = yield [Fetch(owner, ByteRange(found.whole.start, stop))]
        return parse_bloom(body)


def _portions(filters: Iterable[_FileFilter]) -> Generator[list[_FileFilter]]:
    portion: list[_FileFilter] = []
    size = 0
    for found in filters:
        size += found.whole.length if found.blocks is None else 0
        if portion and size > _PORTION:
            yield portion
            portion, size = [], found.whole.length
        portion.append(found)
    if portion:
        yield portion


def _present(filters: Iterable[tuple[_Lookup, BloomFilter]]) -> dict[int, bool]:
    """Probe whole filters, all that look for the same values at once."""
    same: dict[int, list[tuple[_Lookup, BloomFilter]]] = {}
    for found, bloom in filters:
        same.setdefault(id(found.hashes), []).append((found, bloom))
    present: dict[int, bool] = {}
    for pairs in same.values():
        hits = probe([bloom for _, bloom in pairs], pairs[0][0].hashes)
        present.update((id(found), bool(hit.any())) for (found, _), hit in zip(pairs, hits, strict=True))
    return present
