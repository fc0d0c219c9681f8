"""Which statistics of which writers can be believed.

Every rule names the defect it guards against. What is not trusted is unknown; it is never repaired.
"""

from __future__ import annotations

from skipstone.parquet.metadata import Writer
from skipstone.parquet.schema import LeafColumn, LogicalKind, PhysicalType

_P, _K = PhysicalType, LogicalKind
_BYTES = frozenset({_P.BYTE_ARRAY, _P.FIXED_LEN_BYTE_ARRAY})
# INTERVAL has no order in the format; VARIANT, GEOMETRY and GEOGRAPHY bounds mean something else; an
# unknown logical type may order its values in a way of its own.
_UNORDERED = frozenset(
    {_K.INTERVAL, _K.VARIANT, _K.GEOMETRY, _K.GEOGRAPHY, _K.UNKNOWN, _K.LIST, _K.MAP, _K.NULL}
)


def bounds_trusted(leaf: LeafColumn, writer: Writer) -> bool:
    """Whether ``min_value`` and ``max_value`` of this leaf mean what the format says."""
    if leaf.column_order in ("undefined", "unknown") or leaf.logical.kind in _UNORDERED:
        return False
    if not _signed(leaf) and _before(writer, "parquet-mr", (1, 10)):
        return False  # PARQUET-251, PARQUET-686: bytes compared as signed, or not copied
    if not _signed(leaf) and _before(writer, "parquet-cpp", (1, 3)):
        return False  # the same in C++
    fixed_decimal = leaf.logical.kind is _K.DECIMAL and leaf.physical is _P.FIXED_LEN_BYTE_ARRAY
    # PARQUET-1655: decimals compared as unsigned bytes
    return not (fixed_decimal and _before(writer, "parquet-cpp-arrow", (4,)))


def legacy_bounds_trusted(leaf: LeafColumn) -> bool:
    """Whether the deprecated ``min`` and ``max`` can be used: their order was only ever right for
    signed numbers (PARQUET-686)."""
    return _signed(leaf) and leaf.logical.kind not in _UNORDERED and leaf.physical is not _P.INT96


def null_counts_trusted(leaf: LeafColumn, writer: Writer) -> bool:
    """Whether a null count of zero means that there are no nulls."""
    if leaf.max_repetition:
        return False  # arrow#51097: null and empty lists are not always counted
    if len(leaf.path) > 1 and writer.application.lower().startswith(("polars", "cudf")):
        return False  # polars#20621, cudf#12938: nulls above the leaf are miscounted
    return not _before(writer, "parquet-rs", (5,))  # arrow-rs#306: zero for a column that is all null


def all_null_trusted(writer: Writer) -> bool:
    """Whether a null count equal to the value count, without bounds, means that all values are null."""
    # polars#29321: the count was multiplied by the number of pages. Bounds are absent too where they were not
    # asked for, and where all other values are NaN.
    return not writer.application.lower().startswith("polars") or writer.version >= (2, 1)


def _signed(leaf: LeafColumn) -> bool:
    unsigned = leaf.logical.kind is _K.INTEGER and not leaf.logical.signed
    return leaf.physical not in _BYTES and not unsigned


def _before(writer: Writer, application: str, version: tuple[int, ...]) -> bool:
    return writer.application.lower() == application and writer.version < version
