"""Bloom filters and complete dictionaries: evidence that can only prove that no row is TRUE.

Filters are read for undecided row groups: for few keys single blocks, for many keys the entire filter. Of a
long list, only the keys between the bounds of a row group or page are looked up in its filter.
"""

from __future__ import annotations

import bisect
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.arrays import runs
from skipstone.core.domain.keys import Key
from skipstone.core.domain.points import BytePoints
from skipstone.core.domain.spans import ByteSpans, NumberSpans, after_bytes
from skipstone.core.evidence import Array, ColumnFacts, Evidence
from skipstone.core.ir.nodes import Leaf, Node
from skipstone.core.ir.transforms import Same
from skipstone.core.judge import Exclusions, Verdict, judge
from skipstone.parquet.bloom import (
    BadBloom,
    BlockProbe,
    BloomFilter,
    bloom_range,
    has_bloom,
    hash_values,
    parse_bloom,
    probe,
    whole_bloom_range,
)
from skipstone.parquet.evidence import BoundLeaf, find_leaf
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LeafColumn, LogicalKind, PhysicalType
from skipstone.parquet.values import decode_keys, encode_key
from skipstone.prune.survey import BloomRequest, Fetch, Need, PruneOptions, RuledOut, Survey, Unusable
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange

# Entire filters are fetched in portions of about this many bytes, to bound memory.
_PORTION = 64 * 1024 * 1024
# Longer filters are not cached.
_MAX_CACHED = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A leaf that is TRUE only for stored values, and (for bloom filters) the hashes of those values.

    The hashes are :data:`BY_UNIT` if there are so many values that only some are looked up in each filter.
    """

    node: Leaf
    bound: BoundLeaf
    hashes: Array | None = None


def stored_values(node: Node, metadata: ParquetMetadata) -> list[Probe]:
    """Leaves whose TRUE values are values of the column as stored in the file."""
    return [Probe(leaf, bound) for leaf, bound in _stored(node, metadata)]


def _stored(node: Node, metadata: ParquetMetadata) -> list[tuple[Leaf, BoundLeaf]]:
    pairs = []
    for leaf in (node,) if isinstance(node, Leaf) else node.leaves():
        true = leaf.true
        if leaf.ref.via or true.nulls or true.nans or true.spans.is_all:
            continue
        bound = find_leaf(metadata, leaf.ref)
        if bound is not None and all([isinstance(step, Same) for step in bound.steps]):  # noqa: C419
            pairs.append((leaf, bound))
    return pairs


_LONGEST_RUN = 256
_FEW_SPANS = 16
"""Longest range of integers that are looked up individually."""
BY_UNIT: Final = np.zeros(0, dtype=np.uint64)
"""Stands for the hashes of a long list, of which :func:`hashes_by_unit` chooses some for each unit."""
_MAX_LOOKUPS = 200_000
"""Most keys of a long list that are looked up at once, counted in each unit."""

Hashes = dict[tuple[object, ...], Array | None]
"""Hashes of a leaf's values by the storage type of the file, which most files of a lake share."""


def bloom_probes(
    node: Node, metadata: ParquetMetadata, max_keys: int, cache: Hashes | None = None
) -> list[Probe]:
    """Leaves with a list of values, and the hashes of those."""
    probes = []
    for leaf, bound in _stored(node, metadata):
        stored = bound.leaf
        if cache is None:
            hashes = _hashes(leaf, stored, max_keys)
        else:
            key = (id(leaf), stored.physical, stored.type_length, stored.logical)
            if key not in cache:
                cache[key] = _hashes(leaf, stored, max_keys)
            hashes = cache[key]
        if hashes is not None:
            probes.append(Probe(leaf, bound, hashes))
    return probes


def _hashes(leaf: Leaf, stored: LeafColumn, max_keys: int) -> Array | None:
    span = leaf.span
    low, high = (0, 1) if span is None else (span[0].item(), span[1].item())
    if not high - low < _LONGEST_RUN:
        return None  # one of so many values is nearly always present, at least as a false positive
    plain: Sequence[Key]
    if low == high:
        plain = [low]
    else:
        if len(leaf.true.spans) > max_keys:
            return BY_UNIT
        keys = leaf.true.spans.points()
        if keys is None:
            # Ranges, or many integers of which so many are adjacent that they are not listed.
            return BY_UNIT if len(leaf.true.spans) > _FEW_SPANS else None
        count = len(keys)
        if count > max_keys:
            return BY_UNIT
        if not count:
            return None  # there is no value to look up
        plain = keys if isinstance(keys, list) else keys.tolist()
    encoded = [encode_key(stored, key) for key in plain]
    if None in encoded:
        return None
    hashes = hash_values([value for e in encoded if e for value in e])
    return hashes if len(hashes) else None  # values outside the file's type have no hash


def hashes_by_unit(probe: Probe, facts: ColumnFacts, max_keys: int) -> tuple[Array, Array]:
    """Per unit, the hashes of the keys between its bounds: pairs of its position, ascending, and a hash.

    Units without a key have none, and so have units with more than ``max_keys``. If too many keys are left
    for all units together, those with the fewest are chosen.
    """
    spans = probe.node.true.spans
    first, stop = _overlaps(facts, spans)
    counts = np.where(facts.may_value, stop - first, 0)
    units = _fewest(counts, max_keys)
    owners, at = np.repeat(units, counts[units]), runs(first[units], counts[units])
    keys: Array | list[bytes]
    if isinstance(spans, NumberSpans):
        lows = np.maximum(spans.lows[at], facts.lower[owners])
        highs = np.minimum(spans.highs[at], facts.upper[owners])
        if lows.dtype.kind == "f":
            sizes = np.where(lows == highs, 1, max_keys + 1)
        else:  # differences of signed numbers are right modulo 2**64
            more = highs.astype(np.uint64) - lows.astype(np.uint64)
            sizes = np.minimum(more, max_keys).astype(np.int64) + 1
        owners, lows, sizes = _shortest(owners, lows, sizes, max_keys)
        steps = runs(np.zeros_like(sizes), sizes).astype(lows.dtype)
        owners = np.repeat(owners, sizes)
        keys, places = np.unique(np.repeat(lows, sizes) + steps, return_inverse=True)
    elif isinstance(spans, BytePoints):
        numbers, places = np.unique(at, return_inverse=True)
        keys = spans.array.take(pa.array(numbers)).to_pylist()
    else:
        numbers, places = np.unique(at, return_inverse=True)
        counts = np.array([_key_count(spans, n, max_keys + 1) for n in numbers.tolist()], dtype=np.int64)
        owners, at, sizes = _shortest(owners, at, counts[places], max_keys)
        numbers, starts, places = np.unique(at, return_index=True, return_inverse=True)
        counts = sizes[starts]
        keys = [
            key
            for n, count in zip(numbers.tolist(), counts.tolist(), strict=True)
            for key in _keys(spans, n, count)
        ]
        owners, places = np.repeat(owners, sizes), runs((np.cumsum(counts) - counts)[places], sizes)
    hashed = _hash_each(probe.bound.leaf, keys)
    if hashed is None:
        return owners[:0], BY_UNIT
    hashes, counts = hashed
    firsts = np.cumsum(counts) - counts
    return np.repeat(owners, counts[places]), hashes[runs(firsts[places], counts[places])]


def _overlaps(facts: ColumnFacts, spans: NumberSpans | ByteSpans) -> tuple[Array, Array]:
    """Per unit, the first span that is partly between its bounds, and the one after the last."""
    lower, upper = facts.lower, facts.upper
    if isinstance(spans, NumberSpans):
        first, stop = spans.highs.searchsorted(lower), spans.lows.searchsorted(upper, side="right")
        return np.asarray(first), np.asarray(stop)
    if isinstance(spans, BytePoints):
        return spans.between(lower, upper)
    ends = [high for high in spans.highs if high is not None]
    # A loop over units, since NumPy has no binary search in byte strings that end in zeros.
    firsts = [bisect.bisect_right(ends, low or b"") for low in lower.to_pylist()]
    stops = [len(spans) if h is None else bisect.bisect_right(spans.lows, h) for h in upper.to_pylist()]
    return np.array(firsts, dtype=np.int64), np.array(stops, dtype=np.int64)


def _key_count(spans: ByteSpans, number: int, most: int) -> int:
    """The number of keys in a span, or ``most`` if there are more: adjacent keys are merged."""
    low, high = spans.lows[number], spans.highs[number]
    if high == after_bytes(spans.space, low):
        return 1
    if not spans.space.width or high is None:
        return most
    return min(int.from_bytes(high, "big") - int.from_bytes(low, "big"), most)


def _keys(spans: ByteSpans, number: int, count: int) -> list[bytes]:
    """The keys of a span."""
    low = spans.lows[number]
    first, width = int.from_bytes(low, "big"), len(low)
    return [low] if count == 1 else [(first + n).to_bytes(width, "big") for n in range(count)]


def _fewest(counts: Array, max_keys: int) -> Array:
    """Units with 1 to ``max_keys`` keys; those with the fewest if there are too many keys in total."""
    (units,) = ((counts > 0) & (counts <= max_keys)).nonzero()
    order = units[np.argsort(counts[units], kind="stable")]
    return np.sort(order[np.cumsum(counts[order]) <= _MAX_LOOKUPS])


def _shortest(owners: Array, spans: Array, sizes: Array, max_keys: int) -> tuple[Array, Array, Array]:
    """The spans of the units whose spans have few keys."""
    chosen = np.isin(owners, _fewest(np.bincount(owners, sizes).astype(np.int64), max_keys))
    return owners[chosen], spans[chosen], sizes[chosen]


def _hash_each(stored: LeafColumn, keys: Array | list[bytes]) -> tuple[Array, Array] | None:
    """The hashes of all keys in order, and how many each has; None if their encoding is uncertain."""
    if isinstance(keys, np.ndarray):
        width = {PhysicalType.INT32: 4, PhysicalType.INT64: 8}.get(stored.physical)
        if width and keys.dtype.kind != "f":  # as encode_key() does, all at once
            from skipstone.parquet.measure import hash_rows

            unsigned = stored.logical.kind is LogicalKind.INTEGER and not stored.logical.signed
            dtype = np.dtype(f"<{'u' if unsigned else 'i'}{width}")
            limits = np.iinfo(dtype)
            fits = (keys >= limits.min) & (keys <= limits.max)
            rows = keys[fits].astype(dtype).view(np.uint8).reshape(-1, width)
            return hash_rows(rows), fits.astype(np.int64)
    encoded = [encode_key(stored, key) for key in (keys if isinstance(keys, list) else keys.tolist())]
    if None in encoded:
        return None
    hashes = hash_values([value for e in encoded if e for value in e])
    return hashes, np.array([len(e or ()) for e in encoded], dtype=np.int64)


def useful_units(node: Node, evidence: Evidence, units: Array, best: Exclusions) -> Array:
    """The units that would be dropped if every probe in ``best`` were negative."""
    if not best or not len(units):
        return units[:0]
    if isinstance(node, Leaf) and id(node) in best:
        return units[best[id(node)][units]]
    cleared = {leaf: absent[units] for leaf, absent in best.items()}
    return units[~judge(node, evidence.take(units), cleared).bits.true]


def absent_by_dictionary(probe: Probe, values: Array | list[bytes]) -> bool:
    """Whether no dictionary value is in the leaf's TRUE set."""
    raw = values if isinstance(values, list) else [v.tobytes() for v in values]
    keys, ok = decode_keys(probe.bound.leaf, raw)
    spans = probe.node.true.spans
    numbers = isinstance(keys, list) or keys.dtype.kind != "f"
    if numbers and not ok.all():
        return False  # an invalid value can be anything; among floats it is NaN
    if isinstance(keys, list):
        return not any(good and spans.contains(k) for k, good in zip(keys, ok, strict=True) if k is not None)
    assert isinstance(spans, NumberSpans)
    # NaN never matches: stored_values() excludes leaves that are TRUE for NaN.
    keys = keys[ok]
    at = np.searchsorted(spans.highs, keys, side="left")
    inside = (
        (at < len(spans)) & (spans.lows[np.minimum(at, len(spans) - 1)] <= keys) if len(spans) else at < 0
    )
    return not bool(np.any(inside))


# -- filters to read ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    """The filter of a probe's column in a row group."""

    unit: int
    probe: Probe
    hashes: Array


@dataclass(frozen=True, slots=True, eq=False)
class _FileFilter:
    """A filter in a file: its range, and the blocks to read (None: all)."""

    lookup: _Lookup
    whole: ByteRange
    blocks: BlockProbe | None

    @property
    def ranges(self) -> list[ByteRange]:
        return [self.whole] if self.blocks is None else self.blocks.ranges(self.whole.start)


@dataclass(frozen=True, slots=True, eq=False)
class Blooms:
    """Reads the filters that can drop undecided row groups.

    Without a ``cache`` only the needed blocks of a filter are read. With one, entire filters are read (nearby
    ranges share a request anyway) and cached: the next look-up reads nothing.
    """

    survey: Survey
    node: Node
    options: PruneOptions
    unusable: Unusable
    cache: Cache[Any, Any] | None
    silent: list[tuple[int, Leaf]] = field(default_factory=list)
    """Row groups and leaves whose filter was read and is positive."""

    def absent(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], RuledOut]:
        """The units in which the leaves' values are proven absent."""
        units = np.flatnonzero(verdicts == Verdict.SOME)
        ruled_out = RuledOut({}, {}, settled=False)
        if self.options.bloom_provider is None:
            ruled_out, units = self.survey.absent(self.node, units, self.options.max_bloom_keys)
            if ruled_out.settled:
                return ruled_out
        masks = ruled_out.groups
        lookups = self._lookups(evidence, units)
        present = yield from (self._provided(lookups) if self.options.bloom_provider else self._own(lookups))
        for lookup in lookups:
            if id(lookup) in present and present[id(lookup)]:
                self.silent.append((lookup.unit, lookup.probe.node))
            if not present.get(id(lookup), True):
                mask = masks.setdefault(id(lookup.probe.node), np.zeros(len(self.survey), dtype=bool))
                mask[lookup.unit] = True
        return ruled_out

    def _lookups(self, evidence: Evidence, open_units: Array) -> list[_Lookup]:
        """The filters that could drop a row group, even if the files lack them."""
        survey, max_keys = self.survey, self.options.max_bloom_keys
        cache: Hashes = {}
        best: dict[int, Array] = {}
        probes: dict[int, list[Probe]] = {}
        long: dict[int, tuple[Probe, list[int]]] = {}
        by_schema: dict[int, list[Probe]] = {}
        for file in np.unique(survey.owners[open_units]).tolist():
            footer = survey.metadata(file)
            candidates = by_schema.get(id(footer.schema_group))
            if candidates is None:
                candidates = bloom_probes(self.node, footer, max_keys, cache)
                by_schema[id(footer.schema_group)] = candidates
            probes[file] = [one for one in candidates if self._may_help(file, one)]
            for one in probes[file]:
                if id(one.node) not in best:
                    best[id(one.node)] = np.zeros(len(survey), dtype=bool)
                if one.hashes is BY_UNIT:
                    long.setdefault(id(one), (one, []))[1].append(file)
                else:
                    best[id(one.node)][survey.units(file)] = True
        by_unit: dict[tuple[int, int], Array] = {}
        for one, files in long.values():
            units = open_units[np.isin(survey.owners[open_units], files)]
            owners, hashes = hashes_by_unit(one, evidence.facts(one.node.ref).take(units), max_keys)
            owners, starts = np.unique(owners, return_index=True)
            best[id(one.node)][units[owners]] = True
            for unit, mine in zip(units[owners].tolist(), np.split(hashes, starts[1:]), strict=False):
                by_unit[unit, id(one)] = mine
        found = []
        for unit in useful_units(self.node, evidence, open_units, best).tolist():
            for one in probes[int(survey.owners[unit])]:
                chosen = by_unit.get((unit, id(one))) if one.hashes is BY_UNIT else one.hashes
                if chosen is not None:
                    found.append(_Lookup(unit, one, chosen))
        return found

    def _may_help(self, file: int, probe: Probe) -> bool:
        """Whether there can be a filter; partition columns have none."""
        if self.survey.gives(probe.bound.ref.path):
            return False
        return self.options.bloom_provider is not None or has_bloom(
            self.survey.metadata(file), probe.bound.leaf.index
        )

    def _provided(self, lookups: Sequence[_Lookup]) -> Generator[Need, list[Any], dict[int, bool]]:
        if not lookups:
            return {}
        filters = yield [self._request(lookup) for lookup in lookups]
        # A missing filter proves nothing.
        return _present((f, b) for f, b in zip(lookups, filters, strict=True) if b is not None)

    def _request(self, lookup: _Lookup) -> BloomRequest:
        file, group = self.survey.file(lookup.unit), int(self.survey.numbers[lookup.unit])
        return BloomRequest(file.path, group, lookup.probe.bound.ref.path, lookup.probe.bound.leaf.index)

    def _own(self, lookups: Sequence[_Lookup]) -> Generator[Need, list[Any], dict[int, bool]]:
        cached: list[tuple[_Lookup, BloomFilter]] = []
        missing: list[_Lookup] = []
        for lookup in lookups:
            bloom = self.cache.get(self._key(lookup)) if self.cache is not None else None
            if bloom is None:
                missing.append(lookup)
            else:
                cached.append((lookup, bloom))
        present = _present(cached)
        for portion in _portions(self._locate(missing)):
            present |= yield from self._fetch(portion)
        return present

    def _key(self, lookup: _Lookup) -> tuple[Any, ...]:
        file = self.survey.file(lookup.unit)
        group, leaf = int(self.survey.numbers[lookup.unit]), lookup.probe.bound.leaf.index
        return (BloomFilter, file.identity, group, leaf)

    def _locate(self, lookups: Iterable[_Lookup]) -> Generator[_FileFilter]:
        """The filters that the files have."""
        probes: dict[tuple[int, int], BlockProbe | None] = {}
        for lookup in lookups:
            file, group = self.survey.file(lookup.unit), int(self.survey.numbers[lookup.unit])
            try:
                whole = bloom_range(file, group, lookup.probe.bound.leaf.index)
            except BadBloom as error:
                self._bad(lookup, error)
                continue
            if whole is None:
                continue
            key = (id(lookup.hashes), whole.length)
            if key not in probes:
                blocks = self.cache is None or whole.length > _MAX_CACHED
                probes[key] = BlockProbe.of(whole.length, lookup.hashes) if blocks else None
            yield _FileFilter(lookup, whole, probes[key])

    def _bad(self, lookup: _Lookup, error: BadBloom) -> None:
        self.unusable(lookup.unit, lookup.probe.bound.ref.path, "bloom filter", error.reason)

    def _fetch(self, filters: Sequence[_FileFilter]) -> Generator[Need, list[Any], dict[int, bool]]:
        """Whether each filter may contain one of its values, by the look-up's ``id``; without bad filters."""
        wanted = [(int(self.survey.owners[one.lookup.unit]), one.ranges) for one in filters]
        bodies = iter((yield [Fetch(file, r) for file, ranges in wanted for r in ranges]))
        whole: list[tuple[_Lookup, BloomFilter]] = []
        blocks: dict[int, list[tuple[_FileFilter, list[bytes]]]] = {}
        for one, (_, ranges) in zip(filters, wanted, strict=True):
            mine = list(islice(bodies, len(ranges)))
            try:
                if one.blocks is None:
                    bloom = yield from self._parse(one, mine[0])
                    whole.append((one.lookup, bloom))
                    if self.cache is not None:
                        self.cache.put(self._key(one.lookup), bloom, bloom.blocks.nbytes)
                else:
                    one.blocks.check(mine[0])
                    blocks.setdefault(id(one.blocks), []).append((one, mine[1:]))
            except BadBloom as error:
                self._bad(one.lookup, error)
        present = _present(whole)
        for group in blocks.values():
            block_probe = group[0][0].blocks
            assert block_probe is not None
            hits = block_probe.might_contain([body for _, mine in group for body in mine])
            present.update((id(one.lookup), bool(hit)) for (one, _), hit in zip(group, hits, strict=True))
        return present

    def _parse(self, one: _FileFilter, body: bytes) -> Generator[Need, list[Any], BloomFilter]:
        unit, leaf = one.lookup.unit, one.lookup.probe.bound.leaf.index
        whole = whole_bloom_range(self.survey.file(unit), int(self.survey.numbers[unit]), leaf, body)
        if whole.length > len(body):  # the writer omitted the length, and the first range was too short
            (body,) = yield [Fetch(int(self.survey.owners[unit]), whole)]
        return parse_bloom(body)


def _portions(filters: Iterable[_FileFilter]) -> Generator[list[_FileFilter]]:
    portion: list[_FileFilter] = []
    size = 0
    for one in filters:
        size += one.whole.length if one.blocks is None else 0
        if portion and size > _PORTION:
            yield portion
            portion, size = [], one.whole.length
        portion.append(one)
    if portion:
        yield portion


def _present(filters: Iterable[tuple[_Lookup, BloomFilter]]) -> dict[int, bool]:
    """Probe entire filters, grouped by the values they are probed for."""
    groups: dict[int, list[tuple[_Lookup, BloomFilter]]] = {}
    for lookup, bloom in filters:
        groups.setdefault(id(lookup.hashes), []).append((lookup, bloom))
    present: dict[int, bool] = {}
    for pairs in groups.values():
        hits = probe([bloom for _, bloom in pairs], pairs[0][0].hashes)
        present.update((id(lookup), bool(hit.any())) for (lookup, _), hit in zip(pairs, hits, strict=True))
    return present
