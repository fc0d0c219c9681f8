"""Put a nested column together of its leaves, each read alone as a chain of one-child levels.

pyarrow pairs leaves by position, so leaves whose pages hold different rows must not be read together: they
are read one by one, cut to the rows, and merged here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.parquet.slice.shape import leaf_count

if TYPE_CHECKING:
    from numpy.typing import NDArray


class UnevenLeaves(Exception):
    """Leaves of one field that don't agree on its rows, nulls or list lengths."""


def merge(type: pa.DataType, chains: list[pa.Array], present: NDArray[np.bool_] | None = None) -> pa.Array:
    """The column of ``type`` whose leaves, in order, are these chains.

    ``present`` is false where something above is null: what stands there says nothing.
    """
    if len({len(chain) for chain in chains}) > 1:
        raise UnevenLeaves(f"its leaves have {sorted({len(chain) for chain in chains})} values")
    if leaf_count(type) == 1:
        # Only the names of list items can differ: pyarrow forgets them where it prunes below a list.
        (chain,) = chains
        return chain if chain.type == type else chain.cast(type)
    valid = _validity(chains, present)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    size = len(chains[0])
    if pa.types.is_struct(type):
        if valid is not None:
            present = valid if present is None else valid & present
        return pa.Array.from_buffers(type, size, [bits], children=_children(type, chains, present))
    offsets = _offsets(chains)
    values = [chain.values.slice(first, last - first) for chain, first, last in _extents(chains)]
    item = merge(type.field(0).type, values)
    return pa.Array.from_buffers(type, size, [bits, pa.py_buffer(offsets)], children=[item])


def _children(
    type: pa.StructType, chains: list[pa.Array], present: NDArray[np.bool_] | None
) -> list[pa.Array]:
    found, at = [], 0
    for field in type.fields:
        count = leaf_count(field.type)
        found.append(merge(field.type, [chain.field(0) for chain in chains[at : at + count]], present))
        at += count
    return found


def _validity(chains: list[pa.Array], present: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if not any(chain.null_count for chain in chains):
        return None
    masks: list[NDArray[np.bool_]] = [chain.is_valid().to_numpy(zero_copy_only=False) for chain in chains]
    for mask in masks[1:]:
        differs = mask != masks[0]
        if (differs if present is None else differs & present).any():
            raise UnevenLeaves("its leaves have their nulls in different rows")
    return masks[0]


def _offsets(chains: list[pa.Array]) -> NDArray[np.integer]:
    """Where each list begins, counted from the first; the same in all chains."""
    starts = [chain.offsets.to_numpy() for chain in chains]
    rebased = [offsets - offsets[0] for offsets in starts]
    if not all(np.array_equal(rebased[0], offsets) for offsets in rebased[1:]):
        raise UnevenLeaves("its leaves have lists of different lengths")
    first: NDArray[np.integer] = rebased[0]
    return first


def _extents(chains: list[pa.Array]) -> list[tuple[pa.Array, int, int]]:
    return [(chain, chain.offsets[0].as_py(), chain.offsets[-1].as_py()) for chain in chains]
