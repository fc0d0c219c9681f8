"""The compiler from predicates to IR: ordered tuples of passes, each a plain function.

``PREDICATE_PASSES`` rewrite the tree before it is bound, ``NODE_PASSES`` the IR after. Disabling a pass never
changes a result; metadata can only prove less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from skipstone.core.domain import Domain
from skipstone.core.ir.bind import Binder, binder_of
from skipstone.core.ir.lower import Lowering, truth_test
from skipstone.core.ir.nodes import AndNode, ColumnRef, Compiled, ConstantNode, IsNode, Leaf, Node, OrNode
from skipstone.errors import UnknownColumnError
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate, conjunction, disjunction, too_deep

PredicatePass = Callable[[Predicate], Predicate]
NodePass = Callable[[Node], Node]

_MIN_IN_LIST = 16


# -- passes over the predicate -----------------------------------------------------------------


def push_not(predicate: Predicate) -> Predicate:
    """Push NOT down to the leaves and remove double negation."""
    match predicate:
        case tree.Not(arg):
            return _negate(arg)
        case tree.And(args):
            return conjunction(push_not(a) for a in args)
        case tree.Or(args):
            return disjunction(push_not(a) for a in args)
        case tree.Truth(arg, value):
            return tree.Truth(push_not(arg), value)
    return predicate


def _negate(predicate: Predicate) -> Predicate:
    match predicate:
        case tree.Not(arg):
            return push_not(arg)
        case tree.And(args):
            return disjunction(_negate(a) for a in args)
        case tree.Or(args):
            return conjunction(_negate(a) for a in args)
        case tree.Constant(value):
            return tree.Constant(None if value is None else not value)
        case tree.Compare(op) if op in tree.NEGATED:
            return replace(predicate, op=tree.NEGATED[op])
    return tree.Not(predicate)


def fold_constants(predicate: Predicate) -> Predicate:
    """Fold constants in AND and OR, flatten them, and drop duplicate arguments."""
    match predicate:
        case tree.And(args) | tree.Or(args):
            is_and = isinstance(predicate, tree.And)
            remaining: dict[object, Predicate] = {}
            for arg in [fold_constants(a) for a in args]:
                if isinstance(arg, tree.Constant) and arg.value is not None:
                    if arg.value is not is_and:
                        return arg
                    continue
                remaining.setdefault(_identity(arg), arg)
            return conjunction(remaining.values()) if is_and else disjunction(remaining.values())
        case tree.Not(arg):
            inner = fold_constants(arg)
            if isinstance(inner, tree.Constant):
                return _negate(inner)
            return tree.Not(inner)
        case tree.Truth(arg, value):
            inner = fold_constants(arg)
            if isinstance(inner, tree.Constant):
                return tree.Constant(inner.value is value)
            return tree.Truth(inner, value)
    return predicate


def _identity(predicate: Predicate) -> object:
    """Key that is equal for equal conditions, cheap for the most common ones."""
    match predicate:
        case tree.Compare(op, tree.Column(path), tree.Literal(scalar, own), zone):
            return op, path, scalar, own, zone
        case tree.Between(
            tree.Column(path), tree.Literal(low, own), tree.Literal(high, other), above, below, zone
        ):
            return path, low, own, high, other, above, below, zone
    return predicate


def gather_points(predicate: Predicate) -> Predicate:
    """Convert a long OR of ``column = literal`` to IN."""
    match predicate:
        case tree.And(args):
            return conjunction(gather_points(a) for a in args)
        case tree.Or(args) if len(args) >= _MIN_IN_LIST:
            return _to_in_lists(args)
    return predicate


def _to_in_lists(args: tuple[Predicate, ...]) -> Predicate:
    points: dict[tuple[tuple[str, ...], str, str], list[tree.Literal]] = {}
    rest: list[Predicate] = []
    for arg in args:
        match arg:
            case tree.Compare("=", tree.Column(path), tree.Literal(scalar, zone) as literal):
                points.setdefault((path, str(scalar.type), zone), []).append(literal)
            case _:
                rest.append(arg)
    lists = []
    for (path, _, zone), literals in points.items():
        values = pa.array([v.scalar for v in literals], literals[0].scalar.type)
        lists.append(tree.IsIn(tree.Column(path), values, zone))
    return disjunction((*lists, *rest))


# -- passes over the IR ------------------------------------------------------------------------


def merge_columns(node: Node) -> Node:
    """Merge conditions on one column in an AND or OR into a single leaf, by set algebra."""
    match node:
        case AndNode(args) | OrNode(args):
            join = and_leaves if isinstance(node, AndNode) else or_leaves
            leaves: dict[ColumnRef, list[Leaf]] = {}
            rest: list[Node] = []
            for arg in _flatten(type(node), (merge_columns(a) for a in args)):
                if isinstance(arg, Leaf):
                    leaves.setdefault(arg.ref, []).append(arg)
                else:
                    rest.append(arg)
            parts = (*(_merge_leaves(join, group) for group in leaves.values()), *rest)
            return parts[0] if len(parts) == 1 else type(node)(parts)
        case IsNode(arg, value, negated):
            return truth_test(merge_columns(arg), value, negated=negated)
    return node


def _merge_leaves(join: Callable[[Leaf, Leaf], Leaf], leaves: list[Leaf]) -> Leaf:
    """Merge plain leaves of an OR at once, and others pairwise, which takes O(n log n) for thousands."""
    count = len(leaves)
    if count == 1:
        return leaves[0]
    if count > 2 and join is or_leaves and all(leaf.is_plain for leaf in leaves):
        some = leaves
        true = Domain.union_all([leaf.true for leaf in some])
        return Leaf(some[0].ref, true, text=lambda: " OR ".join(_or(leaf) for leaf in some))
    while len(leaves) > 1:
        pairs = [join(*leaves[at : at + 2]) for at in range(0, len(leaves) - 1, 2)]
        leaves = pairs + leaves[len(pairs) * 2 :]
    return leaves[0]


def _flatten(kind: type[Node], args: object) -> list[Node]:
    flat: list[Node] = []
    for arg in args:  # type: ignore[attr-defined]
        flat.extend(arg.args if isinstance(arg, kind) else (arg,))  # type: ignore[attr-defined]
    return flat


def and_leaves(a: Leaf, b: Leaf) -> Leaf:
    """``a AND b`` on one column, in three-valued logic."""
    if a.is_plain and b.is_plain:
        return Leaf(a.ref, a.true & b.true, text=lambda: f"{a.text} AND {b.text}")
    null = (a.null & (b.true | b.null)) | (b.null & (a.true | a.null))
    return Leaf(a.ref, a.true & b.true, a.false | b.false, null, f"{a.text} AND {b.text}")


def or_leaves(a: Leaf, b: Leaf) -> Leaf:
    """``a OR b`` on one column."""
    if a.is_plain and b.is_plain:
        return Leaf(a.ref, a.true | b.true, text=lambda: f"{_or(a)} OR {_or(b)}")
    null = (a.null & (b.false | b.null)) | (b.null & (a.false | a.null))
    return Leaf(a.ref, a.true | b.true, a.false & b.false, null, f"{_or(a)} OR {_or(b)}")


def _or(leaf: Leaf) -> str:
    return f"({leaf.text})" if " AND " in leaf.text else leaf.text


def simplify(node: Node) -> Node:
    """Drop constant arguments of AND and OR."""
    match node:
        case AndNode(args) | OrNode(args):
            is_and = isinstance(node, AndNode)
            remaining: list[Node] = []
            for arg in (simplify(a) for a in args):
                if isinstance(arg, ConstantNode) and arg.value is not None:
                    if arg.value is not is_and:
                        return arg
                    continue
                remaining.append(arg)
            if not remaining:
                return ConstantNode(is_and)
            return remaining[0] if len(remaining) == 1 else type(node)(tuple(remaining))
        case IsNode(arg, value, negated):
            return truth_test(simplify(arg), value, negated=negated)
    return node


PREDICATE_PASSES: tuple[PredicatePass, ...] = (push_not, fold_constants, gather_points)
NODE_PASSES: tuple[NodePass, ...] = (merge_columns, simplify)


def _explained(error: UnknownColumnError, predicate: Predicate) -> UnknownColumnError:
    """Add that the name may be a string without quotes, if it is compared with another column."""
    for node in predicate.walk():
        match node:
            case tree.Compare(_, tree.Column(), tree.Column((name,))) if name == error.column:
                error.hint = f"write a string in quotes: '{name}'; for a column: {error.hint}"
                break
    return error


# -- compile -----------------------------------------------------------------------------------


def compile_predicate(
    predicate: Predicate,
    schema: pa.Schema,
    *,
    case_sensitive: bool = True,
    predicate_passes: tuple[PredicatePass, ...] = PREDICATE_PASSES,
    node_passes: tuple[NodePass, ...] = NODE_PASSES,
) -> Compiled:
    """Compile ``predicate`` for ``schema``: the IR to judge, the residual and diagnostics."""
    try:
        return _compile(predicate, binder_of(schema, case_sensitive), predicate_passes, node_passes)
    except RecursionError:
        raise too_deep() from None


def _compile(
    predicate: Predicate,
    binder: Binder,
    predicate_passes: tuple[PredicatePass, ...],
    node_passes: tuple[NodePass, ...],
) -> Compiled:
    try:
        paths = tuple([binder.column(path).path for path in predicate.columns()])
    except UnknownColumnError as error:
        raise _explained(error, predicate) from None
    rewritten = predicate
    for rewrite_predicate in predicate_passes:
        rewritten = rewrite_predicate(rewritten)
    lowering = Lowering(binder)
    parts = rewritten.args if isinstance(rewritten, tree.And) else (rewritten,)
    conjuncts = tuple([(part, lowering.lower(part)) for part in parts])
    node = AndNode(tuple(n for _, n in conjuncts)) if len(conjuncts) > 1 else conjuncts[0][1]
    for rewrite in node_passes:
        node = rewrite(node)
    return Compiled(node, rewritten, tuple(lowering.unsupported), conjuncts, paths)
