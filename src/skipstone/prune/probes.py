"""Extra evidence that can only rule out TRUE: bloom filters and complete dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from skipstone.core.domain.keys import Key
from skipstone.core.domain.spans import NumberSpans
from skipstone.core.evidence import Array, Evidence
from skipstone.core.ir.nodes import Leaf, Node
from skipstone.core.ir.transforms import Same
from skipstone.core.judge import Cleared, judge
from skipstone.parquet.bloom import hash_values
from skipstone.parquet.evidence import BoundLeaf, find_leaf
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.values import decode_keys, encode_key


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A leaf that is TRUE just for stored values, and (for blooms) the hashes of those values."""

    node: Leaf
    bound: BoundLeaf
    hashes: Array | None = None


def stored_values(node: Node, metadata: ParquetMetadata) -> list[Probe]:
    """Leaves whose TRUE values are values of the column itself, in the form the file stores."""
    return [Probe(leaf, bound) for leaf, bound in _stored(node, metadata)]


def _stored(node: Node, metadata: ParquetMetadata) -> Iterator[tuple[Leaf, BoundLeaf]]:
    for leaf in (node,) if isinstance(node, Leaf) else node.leaves():
        true = leaf.true
        if leaf.ref.via or true.nulls or true.nans or true.spans.is_all:
            continue
        bound = find_leaf(metadata, leaf.ref)
        if bound is not None and all([isinstance(step, Same) for step in bound.steps]):  # noqa: C419
            yield leaf, bound


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


def useful_units(node: Node, evidence: Evidence, units: Array, best: Cleared) -> Array:
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
