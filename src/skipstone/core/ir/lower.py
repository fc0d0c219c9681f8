"""A predicate as IR: the dispatch, AND, OR, NOT and IS TRUE; the rest is in ``families``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from skipstone.core.domain import Domain
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import (
    All,
    Any,
    CantJudge,
    ColumnRef,
    Decided,
    Diagnostic,
    Leaf,
    Node,
    Pair,
    Reason,
    Test,
    Unknown,
    Value,
)
from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate

_MAX_DIAGNOSTICS = 100


@dataclass(slots=True)
class Lowering:
    """Turns a predicate without NOT over AND/OR into IR, noting what can't be judged."""

    binder: Binder
    unsupported: dict[Diagnostic, None] = field(default_factory=dict)

    def lower(self, predicate: Predicate) -> Node:
        """The IR of ``predicate``; a part that can't be judged becomes Unknown with a diagnostic."""
        try:
            return _lowering(type(predicate))(predicate, self)
        except CantJudge as error:
            return self.unknown(predicate, error.reason, error.detail)
        except TypeMismatchError as error:
            names = predicate.columns()
            if error.column is None and len(names) == 1:
                error.column = ".".join(names[0])
            raise

    def unknown(self, part: Predicate, reason: Reason, detail: str) -> Node:
        """An Unknown for ``part``, with its diagnostic."""
        self.note(part, reason, detail)
        return Unknown(str(part))

    def note(self, part: Predicate, reason: Reason, detail: str) -> None:
        """Record why a part is left to the rows, once."""
        if len(self.unsupported) < _MAX_DIAGNOSTICS:
            self.unsupported.setdefault(Diagnostic(str(part), reason, detail))

    def column(self, expr: tree.Expr) -> Value | ColumnRef:
        """The operand of a single-column condition."""
        return self.binder.operand(expr)


@functools.singledispatch
def lower_node(predicate: Predicate, to: Lowering) -> Node:
    """One predicate as IR; the families register their nodes here."""
    raise AssertionError(f"no lowering for {type(predicate).__name__}")


_lowering: Callable[[object], Callable[..., Node]] = functools.cache(lower_node.dispatch)


# -- structure ---------------------------------------------------------------------------------


@lower_node.register
def _(predicate: tree.And, to: Lowering) -> Node:
    return All(tuple(to.lower(arg) for arg in predicate.args))


@lower_node.register
def _(predicate: tree.Or, to: Lowering) -> Node:
    return Any(tuple(to.lower(arg) for arg in predicate.args))


@lower_node.register
def _(predicate: tree.Not, to: Lowering) -> Node:
    node = negate(to.lower(predicate.arg))
    if isinstance(node, Leaf):
        return Leaf(node.ref, node.true, node.false, node.null, predicate.__str__)
    return replace(node, text=str(predicate)) if isinstance(node, Pair) else node


@lower_node.register
def _(predicate: tree.Truth, to: Lowering) -> Node:
    return truth_test(to.lower(predicate.arg), predicate.value)


@lower_node.register
def _(predicate: tree.Constant, to: Lowering) -> Node:
    return Decided(predicate.value)


@lower_node.register
def _(predicate: tree.Opaque, to: Lowering) -> Node:
    return to.unknown(predicate, Reason.OPAQUE, "only its function can tell")


def negate(node: Node) -> Node:
    """NOT: TRUE and FALSE change places, NULL stays."""
    match node:
        case Leaf(ref, true, false, null, text):
            return Leaf(ref, false, true, null, f"NOT ({text})")
        case Decided(value):
            return Decided(None if value is None else not value)
        case All(args):
            return Any(tuple(negate(arg) for arg in args))
        case Any(args):
            return All(tuple(negate(arg) for arg in args))
        case Test(arg, value, negated):
            return Test(arg, value, not negated)
        case Pair(op, left, right, text):
            if op == "<=>":
                return Test(node, True, negated=True)
            return Pair(tree.NEGATED[op], left, right, f"NOT ({text})")
    return node.inverted()


def truth_test(node: Node, value: bool | None, *, negated: bool = False) -> Node:
    """IS [NOT] TRUE, FALSE or UNKNOWN: decided on a leaf's own sets where there is one."""
    if isinstance(node, Decided):
        return Decided((node.value is value) != negated)
    if not isinstance(node, Leaf):
        return Test(node, value, negated)
    parts = {True: node.true, False: node.false, None: node.null}
    holds = parts.pop(value)
    fails = functools.reduce(Domain.union, parts.values())
    if negated:
        holds, fails = fails, holds
    word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[value]
    text = f"({node.text}) IS {'NOT ' if negated else ''}{word}"
    return Leaf(node.ref, holds, fails, Domain.none(node.ref.out), text)


# -- leaves ------------------------------------------------------------------------------------


def null_for_null(ref: ColumnRef, true: Domain, part: Predicate, *, false: Domain | None = None) -> Leaf:
    """A leaf that is NULL just for NULL; FALSE for every other value unless said otherwise."""
    if false is None:
        return Leaf(ref, true, text=part.__str__)
    return Leaf(ref, true, false, Domain.only_null(ref.out), part.__str__)
