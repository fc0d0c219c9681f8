"""The IR: what metadata can judge.

A :class:`Leaf` speaks of one column (or of a monotone function of it) through three sets of values: those
for which the condition may be TRUE, may be FALSE, may be NULL. The sets may overlap: that is how an inexact
condition says so. Comparison, BETWEEN, IN, prefix, IS NULL, isnan and null-safe equality all become such a
leaf, so they share one judge, and conditions on one column merge by set algebra.
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
    """A column by path, or a chain of monotone functions of it."""

    path: tuple[str, ...]
    type: pa.DataType
    via: tuple[Transform, ...] = ()

    @property
    def out(self) -> pa.DataType:
        """Type after the functions."""
        return self.via[-1].out if self.via else self.type

    @property
    def name(self) -> str:
        """The column's dotted name."""
        return ".".join(self.path)

    def then(self, step: Transform) -> ColumnRef:
        """This reference with one more function applied."""
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

    def inverted(self) -> Node:
        """NOT of a node that only its own package understands; what is unknown stays unknown."""
        return self

    @property
    def can_drop(self) -> bool:
        """Whether some evidence could prove that it is TRUE for no row."""
        return True


@dataclass(frozen=True, slots=True)
class ConstantNode(Node):
    """TRUE, FALSE or NULL whatever the row."""

    value: bool | None

    @property
    def can_drop(self) -> bool:
        return self.value is not True

    def __str__(self) -> str:
        return {True: "TRUE", False: "FALSE", None: "NULL"}[self.value]


@dataclass(frozen=True, slots=True)
class OpaqueNode(Node):
    """A part metadata can't judge: TRUE, FALSE and NULL are all possible."""

    text: str

    @property
    def can_drop(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"?({self.text})"


class Leaf(Node):
    """A condition on one column, as the sets of values it may be TRUE, FALSE and NULL for.

    Most conditions are NULL just for NULL and FALSE for every value that is not TRUE. Those two sets are left
    out when such a leaf is made, and worked out if somebody asks; so is the text.
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
        """Whether it is NULL just for NULL, and each other value makes it either TRUE or FALSE."""
        self._false = false
        self._null = null
        self._text = text

    @property
    def false(self) -> Domain:
        """The values that may make it FALSE."""
        if self._false is None:
            self._false = Domain.not_null(self.ref.out) - self.true
        return self._false

    @property
    def null(self) -> Domain:
        """The values that may make it NULL."""
        if self._null is None:
            self._null = Domain.only_null(self.ref.out)
        return self._null

    @property
    def span(self) -> tuple[np.generic, np.generic] | None:
        """The ends of the one run of numbers that make a plain leaf TRUE; None for any other leaf."""
        spans = self.true.spans
        if not self.is_plain or not isinstance(spans, NumberSpans) or len(spans.lows) != 1:
            return None
        return spans.lows[0], spans.highs[0]

    @property
    def text(self) -> str:
        """The condition as people write it."""
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

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Leaf({self.text})"


def columns_of(node: Node) -> tuple[ColumnRef, ...]:
    """The columns that a node speaks of, each once, without the functions it sees them through."""
    refs = (node.ref,) if isinstance(node, Leaf) else node.refs()
    found = {ref.path: ColumnRef(ref.path, ref.type) if ref.via else ref for ref in refs}
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Pair(Node):
    """A comparison of two columns whose keys share one space."""

    op: CompareOp
    left: ColumnRef
    right: ColumnRef
    text: str

    def refs(self) -> Iterator[ColumnRef]:
        yield self.left
        yield self.right

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class _Many(Node):
    args: tuple[Node, ...]

    def leaves(self) -> Iterator[Leaf]:
        for arg in self.args:
            yield from arg.leaves()

    def refs(self) -> Iterator[ColumnRef]:
        for arg in self.args:
            yield from arg.refs()


@dataclass(frozen=True, slots=True)
class AndNode(_Many):
    """AND."""

    @property
    def can_drop(self) -> bool:
        return any(arg.can_drop for arg in self.args)

    def __str__(self) -> str:
        return " AND ".join(f"({a})" if isinstance(a, OrNode) else str(a) for a in self.args)


@dataclass(frozen=True, slots=True)
class OrNode(_Many):
    """OR."""

    @property
    def can_drop(self) -> bool:
        return all(arg.can_drop for arg in self.args)

    def __str__(self) -> str:
        return " OR ".join(f"({a})" if isinstance(a, AndNode) else str(a) for a in self.args)


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

    def __str__(self) -> str:
        word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[self.value]
        return f"({self.arg}) IS {'NOT ' if self.negated else ''}{word}"


class Reason(enum.Enum):
    """Why metadata can't judge a part of a predicate."""

    FUNCTION = "a function that is not monotone, or not known"
    CAST = "a cast of the column that can change its order"
    TYPES = "values of types that metadata can't compare"
    PATTERN = "a pattern without a fixed start"
    ZONE = "a time zone whose clock steps back"
    NESTED = "values inside a list or map"
    OPAQUE = "a function of the caller's own"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One part of a predicate that is left to the rows, and why."""

    part: str
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.part}: {self.detail} ({self.reason.value})"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A predicate bound to a schema.

    ``node`` is judged; ``residual`` is what must still be tested on the rows of a unit that is neither
    dropped nor wholly kept, ``unsupported`` the parts that metadata says nothing about.
    """

    node: Node
    residual: Predicate
    unsupported: tuple[Diagnostic, ...]
    conjuncts: tuple[tuple[Predicate, Node], ...]
    """The residual's conjuncts, each with what metadata can judge of it."""
    paths: tuple[tuple[str, ...], ...]
    """All columns of the predicate."""

    @property
    def prunable(self) -> Predicate:
        """The conjuncts that some evidence could prove to be TRUE for no row."""
        return conjunction(part for part, node in self.conjuncts if node.can_drop)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the columns the judge needs evidence about, each once."""
        return tuple(dict.fromkeys(ref.path for ref in self.node.refs()))


# -- operands ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """An operand that is a constant."""

    scalar: pa.Scalar
    zone: str


class CantJudge(Exception):
    """An operand or comparison that metadata can't judge; it is left to the rows."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
