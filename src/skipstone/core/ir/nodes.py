"""The IR that metadata can judge.

A :class:`Leaf` is a condition on one column (or a monotone function of it), given by three sets of values:
those for which it may be TRUE, may be FALSE and may be NULL. The sets of an inexact condition overlap.
Comparison, BETWEEN, IN, prefix, IS NULL, isnan and null-safe equality all become leaves, so they share one
judge, and conditions on one column are merged by set algebra.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skipstone.core.domain import Domain
from skipstone.core.domain.spans import NumberSpans
from skipstone.core.ir.transforms import Transform
from skipstone.predicate.tree import CompareOp, Predicate, conjunction


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, or a chain of monotone functions of it."""

    path: tuple[str, ...]
    type: pa.DataType
    via: tuple[Transform, ...] = ()

    @property
    def out(self) -> pa.DataType:
        """Type after the functions."""
        return self.via[-1].out if self.via else self.type

    @property
    def name(self) -> str:
        """Dotted name of the column."""
        return ".".join(self.path)

    def then(self, step: Transform) -> ColumnRef:
        """Apply one more function."""
        return ColumnRef(self.path, self.type, (*self.via, step))

    def __hash__(self) -> int:
        return hash((self.path, self.via))


class Node:
    """A node of the IR."""

    __slots__ = ()

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf below."""
        yield from ()

    def refs(self) -> Iterator[ColumnRef]:
        """Every column reference below."""
        for leaf in self.leaves():
            yield leaf.ref

    def invert(self) -> Node:
        """NOT of a node without a rule in ``negate``; an unknown condition stays unknown."""
        return self

    @property
    def can_drop(self) -> bool:
        """Whether evidence could prove that no row is TRUE."""
        return True

    def render(self) -> str:
        """The condition for display."""
        raise NotImplementedError

    def __str__(self) -> str:
        try:
            return self.render()
        except RecursionError:
            return f"{type(self).__name__}(nested too deeply to show)"


@dataclass(frozen=True, slots=True)
class ConstantNode(Node):
    """TRUE, FALSE or NULL for every row."""

    value: bool | None

    @property
    def can_drop(self) -> bool:
        return self.value is not True

    def render(self) -> str:
        return {True: "TRUE", False: "FALSE", None: "NULL"}[self.value]


@dataclass(frozen=True, slots=True)
class OpaqueNode(Node):
    """A part that metadata can't judge: it may be TRUE, FALSE and NULL."""

    text: str

    @property
    def can_drop(self) -> bool:
        return False

    def render(self) -> str:
        return f"?({self.text})"


class Leaf(Node):
    """A condition on one column, as the sets of values for which it may be TRUE, FALSE and NULL.

    Most leaves are plain: NULL only for NULL, and FALSE for every value that is not TRUE. These two sets, and
    the text, are computed on demand.
    """

    __slots__ = ("_false", "_null", "_text", "is_plain", "ref", "true")
    __match_args__ = ("ref", "true", "false", "null", "text")

    def __init__(
        self,
        ref: ColumnRef,
        true: Domain,
        false: Domain | None = None,
        null: Domain | None = None,
        text: str | Callable[[], str] = "",
    ) -> None:
        self.ref = ref
        self.true = true
        self.is_plain = false is None and null is None
        """Whether it is NULL only for NULL, and either TRUE or FALSE for every other value."""
        self._false = false
        self._null = null
        self._text = text

    @property
    def false(self) -> Domain:
        """Values for which it may be FALSE."""
        if self._false is None:
            self._false = Domain.not_null(self.ref.out) - self.true
        return self._false

    @property
    def null(self) -> Domain:
        """Values for which it may be NULL."""
        if self._null is None:
            self._null = Domain.only_null(self.ref.out)
        return self._null

    @property
    def span(self) -> tuple[np.generic, np.generic] | None:
        """Ends of the span of a plain leaf with a single span of numbers, otherwise None."""
        spans = self.true.spans
        if not self.is_plain or not isinstance(spans, NumberSpans) or len(spans.lows) != 1:
            return None
        return spans.lows[0], spans.highs[0]

    @property
    def text(self) -> str:
        """The condition for display."""
        return self._text if isinstance(self._text, str) else self._text()

    @property
    def can_drop(self) -> bool:
        return not self.true.is_all

    def leaves(self) -> Iterator[Leaf]:
        yield self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.ref, self.true, self.false, self.null, self.text)

    def render(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Leaf({self.text})"


def columns_of(node: Node) -> tuple[ColumnRef, ...]:
    """Columns of a node, without duplicates and without functions."""
    refs = (node.ref,) if isinstance(node, Leaf) else node.refs()
    by_path = {ref.path: ColumnRef(ref.path, ref.type) if ref.via else ref for ref in refs}
    return tuple(by_path.values())


@dataclass(frozen=True, slots=True)
class ColumnComparison(Node):
    """A comparison of two columns whose keys are comparable."""

    op: CompareOp
    left: ColumnRef
    right: ColumnRef
    text: str

    def refs(self) -> Iterator[ColumnRef]:
        yield self.left
        yield self.right

    def render(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class _Junction(Node):
    args: tuple[Node, ...]

    def leaves(self) -> Iterator[Leaf]:
        for arg in self.args:
            yield from arg.leaves()

    def refs(self) -> Iterator[ColumnRef]:
        for arg in self.args:
            yield from arg.refs()


@dataclass(frozen=True, slots=True)
class AndNode(_Junction):
    """Logical AND."""

    @property
    def can_drop(self) -> bool:
        return any(arg.can_drop for arg in self.args)

    def render(self) -> str:
        return " AND ".join(f"({a.render()})" if isinstance(a, OrNode) else a.render() for a in self.args)


@dataclass(frozen=True, slots=True)
class OrNode(_Junction):
    """Logical OR."""

    @property
    def can_drop(self) -> bool:
        return all(arg.can_drop for arg in self.args)

    def render(self) -> str:
        return " OR ".join(f"({a.render()})" if isinstance(a, AndNode) else a.render() for a in self.args)


@dataclass(frozen=True, slots=True)
class IsNode(Node):
    """``arg IS TRUE``, ``IS FALSE`` or (None) ``IS UNKNOWN``: TRUE or FALSE, never NULL."""

    arg: Node
    value: bool | None
    negated: bool = False

    def leaves(self) -> Iterator[Leaf]:
        yield from self.arg.leaves()

    def refs(self) -> Iterator[ColumnRef]:
        yield from self.arg.refs()

    def render(self) -> str:
        word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[self.value]
        return f"({self.arg.render()}) IS {'NOT ' if self.negated else ''}{word}"


class Reason(enum.Enum):
    """Why metadata can't judge a part of a predicate."""

    FUNCTION = "function is unknown or not monotone"
    CAST = "cast can change the order of the column"
    TYPES = "metadata can't compare the types"
    PATTERN = "pattern has no literal prefix"
    ZONE = "time zone has DST changes"
    NESTED = "values are inside a list or map"
    OPAQUE = "user-defined function"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A part of a predicate that metadata can't judge, and why.

    Examples:
        >>> import skipstone as sk
        >>> result = sk.prune("events/part-0.parquet", "event_id = 7 and amount * 2 > 3")
        >>> [diagnostic.part for diagnostic in result.compiled.unsupported]
        ['(amount * 2) > 3']
    """

    part: str
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.part}: {self.detail} ({self.reason.value})"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A predicate bound to a schema.

    ``residual`` must be tested on the rows of units that are neither dropped nor proven; ``unsupported`` are
    the parts that metadata can't judge.

    Examples:
        >>> import skipstone as sk
        >>> sk.prune("events/part-0.parquet", "event_id = 7 and amount * 2 > 3").compiled.prunable
        Predicate("event_id = 7")
    """

    node: Node
    residual: Predicate
    unsupported: tuple[Diagnostic, ...]
    conjuncts: tuple[tuple[Predicate, Node], ...]
    """Conjuncts of the residual, with their IR."""
    paths: tuple[tuple[str, ...], ...]
    """All columns of the predicate."""

    @property
    def prunable(self) -> Predicate:
        """Conjuncts for which evidence could prove that no row is TRUE."""
        return conjunction(part for part, node in self.conjuncts if node.can_drop)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the columns the judge needs evidence about, without duplicates."""
        return tuple(dict.fromkeys(ref.path for ref in self.node.refs()))


# -- operands ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """A constant operand."""

    scalar: pa.Scalar
    zone: str


class NotJudgeable(Exception):
    """Raised for an operand or comparison that metadata can't judge."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
