"""Domain: a set of values of one type, with NULL and NaN as members of their own."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, array_keys, key_space, storage_type, to_key
from skipstone.core.domain.ranges import Range, ranges_of
from skipstone.core.domain.spans import ByteSpans, NumberSpans, all_keys, no_keys
from skipstone.errors import TypeMismatchError

_SHOWN_RANGES = 6


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Domain:
    """The values a column may have: ranges, and whether NULL and NaN belong to it.

    >>> import pyarrow as pa
    >>> print(Domain.of(pa.int32(), Range.greater_than(pa.int32(), 34)).complement())
    (-∞, 34] or NULL
    """

    type: pa.DataType
    spans: NumberSpans | ByteSpans
    nulls: bool
    nans: bool

    # -- making ------------------------------------------------------------------------------

    @classmethod
    def of(cls, type: pa.DataType, *ranges: Range, nulls: bool = False, nans: bool = False) -> Domain:
        """The union of ``ranges``."""
        spans = no_keys(key_space(type))
        for item in ranges:
            if item.type != type:
                raise TypeMismatchError(f"a domain of {type} can't hold a range of {item.type}")
            spans = spans.union(item.spans())  # type: ignore[arg-type]
        return cls.of_spans(type, spans, nulls=nulls, nans=nans)

    @classmethod
    def of_spans(
        cls, type: pa.DataType, spans: NumberSpans | ByteSpans, *, nulls: bool = False, nans: bool = False
    ) -> Domain:
        """A domain from a set of keys."""
        return cls(type, spans, nulls, nans and spans.space.kind is Kind.FLOAT)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def none(cls, type: pa.DataType) -> Domain:
        """No value at all."""
        return cls.of_spans(type, no_keys(key_space(type)))

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def all(cls, type: pa.DataType) -> Domain:
        """Every value, NULL and NaN."""
        return cls.of_spans(type, all_keys(key_space(type)), nulls=True, nans=True)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def not_null(cls, type: pa.DataType) -> Domain:
        """Every value and NaN, but not NULL."""
        return cls.of_spans(type, all_keys(key_space(type)), nans=True)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def only_null(cls, type: pa.DataType) -> Domain:
        """NULL alone."""
        return cls.of_spans(type, no_keys(key_space(type)), nulls=True)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def only_nan(cls, type: pa.DataType) -> Domain:
        """NaN alone (nothing for a type without NaN)."""
        return cls.of_spans(type, no_keys(key_space(type)), nans=True)

    @classmethod
    def values(cls, type: pa.DataType, values: Iterable[object] | pa.Array) -> Domain:
        """Just these values; a NULL or NaN among them counts."""
        space = key_space(type)
        storage = storage_type(type)
        array = values if isinstance(values, pa.Array) else pa.array(list(values), storage)
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if array.type != storage:
            array = array.cast(storage)
        nulls = array.null_count > 0
        array = array.drop_null()
        nans = False
        if space.kind is Kind.FLOAT:
            if pa.types.is_float16(array.type):
                array = array.cast(pa.float32())
            mask = pc.is_nan(array)
            nans = bool(pc.any(mask).as_py())
            array = array.filter(pc.invert(mask))
        keys = array_keys(type, array)
        if isinstance(keys, list):
            return cls(type, ByteSpans.of_points(space, keys), nulls, nans)
        return cls(type, NumberSpans.of_points(space, keys), nulls, nans)

    # -- looking -----------------------------------------------------------------------------

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges, in order, none touching another."""
        return ranges_of(self.type, self.spans)

    @property
    def is_none(self) -> bool:
        """Whether nothing belongs to it."""
        return self.spans.is_empty and not self.nulls and not self.nans

    @property
    def is_all(self) -> bool:
        """Whether everything belongs to it."""
        return self.nulls and self.spans.is_all and (self.nans or self.spans.space.kind is not Kind.FLOAT)

    def contains(self, value: object) -> bool:
        """Whether a value (None is NULL) or every value of another domain belongs to it."""
        if isinstance(value, Domain):
            return self.intersect(value) == value
        if value is None:
            return self.nulls
        if isinstance(value, float) and value != value:
            return self.nans
        return self.spans.contains(to_key(self.type, value))

    def overlaps(self, other: Domain) -> bool:
        """Whether some value belongs to both."""
        if (self.nulls and other.nulls) or (self.nans and other.nans):
            return True
        return not (self.spans.is_empty or other.spans.is_empty) and not self.intersect(other).is_none

    # -- algebra -----------------------------------------------------------------------------

    def union(self, other: Domain) -> Domain:
        """Values of either."""
        self._check(other)
        spans = self.spans.union(other.spans)  # type: ignore[arg-type]
        return Domain(self.type, spans, self.nulls or other.nulls, self.nans or other.nans)

    def intersect(self, other: Domain) -> Domain:
        """Values of both."""
        self._check(other)
        spans = self.spans.intersect(other.spans)  # type: ignore[arg-type]
        return Domain(self.type, spans, self.nulls and other.nulls, self.nans and other.nans)

    def complement(self) -> Domain:
        """Every value, NULL and NaN that doesn't belong to it."""
        return Domain.of_spans(self.type, self.spans.complement(), nulls=not self.nulls, nans=not self.nans)

    __and__, __or__, __invert__ = intersect, union, complement

    def __sub__(self, other: Domain) -> Domain:
        return self.intersect(other.complement())

    def _check(self, other: Domain) -> None:
        if self.type != other.type:
            raise TypeMismatchError(f"domains of {self.type} and {other.type} don't combine")

    # -- identity ----------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Domain)
            and self.type == other.type
            and (self.nulls, self.nans) == (other.nulls, other.nans)
            and self.spans == other.spans
        )

    def __hash__(self) -> int:
        return hash((str(self.type), self.spans, self.nulls, self.nans))

    def __str__(self) -> str:
        if self.is_none:
            return "nothing"
        if self.is_all:
            return "anything"
        spans = self.spans
        shown = [str(r) for r in self.ranges[:_SHOWN_RANGES]] if len(spans) < 10_000 else []
        if len(spans) > len(shown):
            shown.append(f"{len(spans) - len(shown):,} more ranges")
        if self.nans:
            shown.append("NaN")
        if self.nulls:
            shown.append("NULL")
        return " or ".join(shown)

    def __repr__(self) -> str:
        return f"Domain({self.type}: {self})"
