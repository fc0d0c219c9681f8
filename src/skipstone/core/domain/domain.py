"""Domain: a set of values of one type, including NULL and NaN; and domains of several columns."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, key_space, storage_type, to_key
from skipstone.core.domain.points import points_of
from skipstone.core.domain.spans import ByteSpans, NumberSpans, Range, all_keys, no_keys, ranges_of, united
from skipstone.core.plain import type_name
from skipstone.errors import NotExpressibleError, PredicateError, TypeMismatchError

_MAX_RANGES = 6


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Domain:
    """A set of values of one type: ranges, and whether NULL and NaN are included.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> print(sk.Domain.of(pa.int32(), sk.Range.greater_than(pa.int32(), 34)).complement())
        (-∞, 34] or NULL
    """

    type: pa.DataType
    spans: NumberSpans | ByteSpans
    nulls: bool
    nans: bool

    # -- constructors ------------------------------------------------------------------------

    @classmethod
    def of(cls, type: pa.DataType, *ranges: Range, nulls: bool = False, nans: bool = False) -> Domain:
        """Union of ``ranges``."""
        for item in ranges:
            if item.type != type:
                raise TypeMismatchError(
                    f"domain of {type_name(type)} can't contain a range of {type_name(item.type)}"
                )
        spans = united(key_space(type), [item.spans() for item in ranges])
        return cls.of_spans(type, spans, nulls=nulls, nans=nans)

    @classmethod
    def of_spans(
        cls, type: pa.DataType, spans: NumberSpans | ByteSpans, *, nulls: bool = False, nans: bool = False
    ) -> Domain:
        """Make a domain from a set of keys."""
        return cls(type, spans, nulls, nans and spans.space.kind is Kind.FLOAT)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def none(cls, type: pa.DataType) -> Domain:
        """The empty set."""
        return cls.of_spans(type, no_keys(key_space(type)))

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def all(cls, type: pa.DataType) -> Domain:
        """All values, NULL and NaN."""
        return cls.of_spans(type, all_keys(key_space(type)), nulls=True, nans=True)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def not_null(cls, type: pa.DataType) -> Domain:
        """All values and NaN, without NULL."""
        return cls.of_spans(type, all_keys(key_space(type)), nans=True)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def only_null(cls, type: pa.DataType) -> Domain:
        """Only NULL."""
        return cls.of_spans(type, no_keys(key_space(type)), nulls=True)

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def only_nan(cls, type: pa.DataType) -> Domain:
        """Only NaN; empty for a type without NaN."""
        return cls.of_spans(type, no_keys(key_space(type)), nans=True)

    @classmethod
    def values(cls, type: pa.DataType, values: Iterable[object] | pa.Array) -> Domain:
        """The given values, which can include NULL and NaN."""
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
        return cls(type, points_of(type, array), nulls, nans)

    # -- queries -----------------------------------------------------------------------------

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Sorted, non-adjacent ranges."""
        return ranges_of(self.type, self.spans)

    @property
    def is_none(self) -> bool:
        """Whether the set is empty."""
        return self.spans.is_empty and not self.nulls and not self.nans

    @property
    def is_all(self) -> bool:
        """Whether the set contains all values, NULL and NaN."""
        return self.nulls and self.spans.is_all and (self.nans or self.spans.space.kind is not Kind.FLOAT)

    def contains(self, value: object) -> bool:
        """Whether the set contains a value (None is NULL) or all values of another domain."""
        if isinstance(value, Domain):
            return self.intersect(value) == value
        if value is None:
            return self.nulls
        if isinstance(value, float) and value != value:
            return self.nans
        return self.spans.contains(to_key(self.type, value))

    def overlaps(self, other: Domain) -> bool:
        """Whether the sets have a common value."""
        if (self.nulls and other.nulls) or (self.nans and other.nans):
            return True
        return not (self.spans.is_empty or other.spans.is_empty) and not self.intersect(other).is_none

    # -- algebra -----------------------------------------------------------------------------

    def union(self, other: Domain) -> Domain:
        """Set union."""
        self._check(other)
        spans = self.spans.union(other.spans)  # type: ignore[arg-type]
        return Domain(self.type, spans, self.nulls or other.nulls, self.nans or other.nans)

    @staticmethod
    def union_all(domains: Sequence[Domain]) -> Domain:
        """Union of any number of domains of one type, merged once."""
        first = domains[0]
        for other in domains:
            first._check(other)
        spans = united(first.spans.space, [one.spans for one in domains])
        nulls, nans = any(one.nulls for one in domains), any(one.nans for one in domains)
        return Domain(first.type, spans, nulls, nans)

    def intersect(self, other: Domain) -> Domain:
        """Set intersection."""
        self._check(other)
        spans = self.spans.intersect(other.spans)  # type: ignore[arg-type]
        return Domain(self.type, spans, self.nulls and other.nulls, self.nans and other.nans)

    def complement(self) -> Domain:
        """Set complement, including NULL and NaN."""
        return Domain.of_spans(self.type, self.spans.complement(), nulls=not self.nulls, nans=not self.nans)

    __and__, __or__, __invert__ = intersect, union, complement

    def __sub__(self, other: Domain) -> Domain:
        return self.intersect(other.complement())

    def _check(self, other: Domain) -> None:
        if self.type != other.type:
            raise TypeMismatchError(
                f"domains of {type_name(self.type)} and {type_name(other.type)} can't be combined"
            )

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
        parts = [str(r) for r in self.ranges[:_MAX_RANGES]] if len(spans) < 10_000 else []
        if len(spans) > len(parts):
            parts.append(f"{len(spans) - len(parts):,} more ranges")
        if self.nans:
            parts.append("NaN")
        if self.nulls:
            parts.append("NULL")
        return " or ".join(parts)

    def __repr__(self) -> str:
        return f"Domain({type_name(self.type)}: {self})"


# -- several columns ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnHandle:
    """A column by name and type, or a field of a struct by its path.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> str(sk.ColumnHandle("address", pa.string(), ("city",)))
        'address.city'
    """

    name: str
    type: pa.DataType
    fields: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """Name of the column and of the struct fields below it."""
        return (self.name, *self.fields)

    def __hash__(self) -> int:
        return hash((self.path, str(self.type)))

    def __str__(self) -> str:
        return ".".join(self.path)


class DomainTree:
    """An AND/OR tree of column domains: a set of rows."""

    __slots__ = ()

    def __and__(self, other: DomainTree) -> DomainTree:
        return all_of(self, other)

    def __or__(self, other: DomainTree) -> DomainTree:
        return any_of(self, other)

    def complement(self) -> DomainTree:
        """Rows that are not in this set."""
        raise NotImplementedError

    def __invert__(self) -> DomainTree:
        return self.complement()

    def hull(self) -> ColumnDomain:
        """Smallest ColumnDomain that contains every row of this set."""
        raise NotImplementedError

    def to_column_domain(self) -> ColumnDomain:
        """Convert to one ColumnDomain; raise if that is not exact."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ColumnDomain(DomainTree):
    """A condition on several columns: the value of each must be in its domain.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> x = sk.ColumnHandle("x", pa.int64())
        >>> one = sk.ColumnDomain.of({x: sk.Domain.values(pa.int64(), [1, 2])})
        >>> print(one.intersect(sk.ColumnDomain.of({x: sk.Domain.values(pa.int64(), [2, 3])})))
        x in [2]
    """

    items: tuple[tuple[ColumnHandle, Domain], ...]
    is_none: bool = False
    """Whether the set is empty; ``items`` is empty then."""

    @classmethod
    def of(cls, domains: Mapping[ColumnHandle, Domain]) -> ColumnDomain:
        """Make a ColumnDomain from a mapping; unconstrained columns are dropped."""
        if any(d.is_none for d in domains.values()):
            return cls.none()
        return cls(tuple((c, d) for c, d in domains.items() if not d.is_all))

    @classmethod
    def none(cls) -> ColumnDomain:
        """The empty set."""
        return cls((), is_none=True)

    @classmethod
    def all(cls) -> ColumnDomain:
        """All rows."""
        return cls(())

    @property
    def domains(self) -> dict[ColumnHandle, Domain]:
        """The domain of each constrained column."""
        return dict(self.items)

    @property
    def is_all(self) -> bool:
        """Whether the set contains all rows."""
        return not self.items and not self.is_none

    def domain(self, column: ColumnHandle) -> Domain:
        """Domain of ``column``."""
        if self.is_none:
            return Domain.none(column.type)
        return self.domains.get(column) or Domain.all(column.type)

    def intersect(self, other: ColumnDomain) -> ColumnDomain:
        """Set intersection."""
        if self.is_none or other.is_none:
            return ColumnDomain.none()
        merged = self.domains
        for column, domain in other.items:
            merged[column] = merged[column] & domain if column in merged else domain
        return ColumnDomain.of(merged)

    def union(self, other: ColumnDomain) -> DomainTree:
        """Set union: one ColumnDomain if that is exact, otherwise an OR."""
        return any_of(self, other)

    def complement(self) -> DomainTree:
        """Set complement: one ColumnDomain for one column, otherwise an OR over the columns."""
        if self.is_none:
            return ColumnDomain.all()
        if self.is_all:
            return ColumnDomain.none()
        return any_of(*(ColumnDomain.of({c: d.complement()}) for c, d in self.items))

    def overlaps(self, other: ColumnDomain) -> bool:
        """Whether the sets can have a common row."""
        return not self.intersect(other).is_none

    def contains(self, other: ColumnDomain) -> bool:
        """Whether ``other`` is a subset."""
        if self.is_none or other.is_none:
            return other.is_none
        return all(d.contains(other.domain(c)) for c, d in self.items)

    def hull(self) -> ColumnDomain:
        return self

    def to_column_domain(self) -> ColumnDomain:
        return self

    def to_json(self) -> str:
        """Convert to JSON text; ``from_json`` converts back.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> x = sk.ColumnHandle("x", pa.int64())
            >>> sk.ColumnDomain.of({x: sk.Domain.values(pa.int64(), [1, 7])}).to_json()
            '{"columns": [{"name": "x", "values": [1, 7], "nulls": false, "nans": false}]}'
        """
        from skipstone.core.domain.documents import to_document

        return json.dumps(to_document(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, schema: pa.Schema) -> ColumnDomain:
        """Convert from JSON text.

        Args:
            text: The text, as ``to_json`` writes it.
            schema: The types of the columns.

        Examples:
            >>> import skipstone as sk
            >>> lake = sk.open("events")
            >>> text = '{"columns": [{"name": "event_id", "ranges": [{"low": 990}]}]}'
            >>> len(lake.files_to_query(None, sk.ColumnDomain.from_json(text, lake.schema)))
            1
        """
        from skipstone.core.domain.documents import from_document

        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PredicateError(f"domain is not valid JSON: {error}") from None
        return from_document(document, schema)

    def __str__(self) -> str:
        if self.is_none:
            return "nothing"
        return " and ".join(f"{c} in {d}" for c, d in self.items) or "anything"


@dataclass(frozen=True, slots=True)
class AnyOf(DomainTree):
    """Union of the branches."""

    args: tuple[DomainTree, ...]

    def complement(self) -> DomainTree:
        return all_of(*(a.complement() for a in self.args))

    def hull(self) -> ColumnDomain:
        hulls = [h for h in (a.hull() for a in self.args) if not h.is_none]
        if not hulls:
            return ColumnDomain.none()
        shared = set(hulls[0].domains).intersection(*(h.domains for h in hulls))
        united: dict[ColumnHandle, Domain] = {}
        for column in (c for c, _ in hulls[0].items if c in shared):
            domain = hulls[0].domain(column)
            for h in hulls[1:]:
                domain = domain | h.domain(column)
            united[column] = domain
        return ColumnDomain.of(united)

    def to_column_domain(self) -> ColumnDomain:
        raise NotExpressibleError(
            f"OR over several columns is not a ColumnDomain: {self}",
            hint="use hull() for the smallest ColumnDomain that contains it",
        )

    def __str__(self) -> str:
        return " or ".join(f"({a})" for a in self.args)


@dataclass(frozen=True, slots=True)
class AllOf(DomainTree):
    """Intersection of the branches."""

    args: tuple[DomainTree, ...]

    def complement(self) -> DomainTree:
        return any_of(*(a.complement() for a in self.args))

    def hull(self) -> ColumnDomain:
        result = ColumnDomain.all()
        for arg in self.args:
            result = result.intersect(arg.hull())
        return result

    def to_column_domain(self) -> ColumnDomain:
        result = ColumnDomain.all()
        for arg in self.args:
            result = result.intersect(arg.to_column_domain())
        return result

    def __str__(self) -> str:
        return " and ".join(f"({a})" for a in self.args)


def any_of(*args: DomainTree) -> DomainTree:
    """Union of the arguments; branches on the same column are merged."""
    branches = [b for a in args for b in (a.args if isinstance(a, AnyOf) else (a,))]
    if any(isinstance(b, ColumnDomain) and b.is_all for b in branches):
        return ColumnDomain.all()
    single: dict[ColumnHandle, Domain] = {}
    rest: list[DomainTree] = []
    for branch in branches:
        if isinstance(branch, ColumnDomain) and len(branch.items) == 1:
            column, domain = branch.items[0]
            single[column] = single[column] | domain if column in single else domain
        elif branch not in rest:
            rest.append(branch)
    united: list[DomainTree] = [ColumnDomain.of({c: d}) for c, d in single.items()]
    merged = [*united, *rest]
    if any(isinstance(b, ColumnDomain) and b.is_all for b in merged):
        return ColumnDomain.all()
    live = [b for b in merged if not (isinstance(b, ColumnDomain) and b.is_none)]
    if not live:
        return ColumnDomain.none()
    return live[0] if len(live) == 1 else AnyOf(tuple(live))


def all_of(*args: DomainTree) -> DomainTree:
    """Intersection of the arguments; ColumnDomains are merged."""
    simple = ColumnDomain.all()
    rest: list[DomainTree] = []
    for branch in (b for a in args for b in (a.args if isinstance(a, AllOf) else (a,))):
        if isinstance(branch, ColumnDomain):
            simple = simple.intersect(branch)
        elif branch not in rest:
            rest.append(branch)
    if not rest or simple.is_none:
        return simple
    if not simple.is_all:
        rest.insert(0, simple)
    return rest[0] if len(rest) == 1 else AllOf(tuple(rest))
