"""From a predicate and a schema to IR: passes in one ordered tuple, each a plain function.

``PREDICATE_PASSES`` rewrite the tree before it is bound, ``NODE_PASSES`` the IR after. Any of them can be
left out without changing an answer; what is lost is only how much metadata can prove.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from skipstone.core.ir.bind import Binder, binder_of
from skipstone.core.ir.lower import Lowering, truth_test
from skipstone.core.ir.nodes import AndNode, ColumnRef, Compiled, ConstantNode, IsNode, Leaf, Node, OrNode
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate, conjunction, disjunction, too_deep

PredicatePass = Callable[[Predicate], Predicate]
NodePass = Callable[[Node], Node]

_MANY_POINTS = 16


# -- passes over the predicate -----------------------------------------------------------------


def push_not(predicate: Predicate) -> Predicate:
    """NOT moved down to the leaves; double negation gone."""
    match predicate:
        case tree.Not(arg):
            return _negated(arg)
        case tree.And(args):
            return conjunction(push_not(a) for a in args)
        case tree.Or(args):
            return disjunction(push_not(a) for a in args)
        case tree.Truth(arg, value):
            return tree.Truth(push_not(arg), value)
    return predicate


def _negated(predicate: Predicate) -> Predicate:
    match predicate:
        case tree.Not(arg):
            return push_not(arg)
        case tree.And(args):
            return disjunction(_negated(a) for a in args)
        case tree.Or(args):
            return conjunction(_negated(a) for a in args)
        case tree.Constant(value):
            return tree.Constant(None if value is None else not value)
        case tree.Compare(op, left, right) if op in tree.NEGATED:
            return tree.Compare(tree.NEGATED[op], left, right)
    return tree.Not(predicate)


def fold_constants(predicate: Predicate) -> Predicate:
    """AND and OR with constant arguments simplified, flattened, repeated arguments dropped."""
    match predicate:
        case tree.And(args) | tree.Or(args):
            is_and = isinstance(predicate, tree.And)
            kept: dict[object, Predicate] = {}
            for arg in [fold_constants(a) for a in args]:
                if isinstance(arg, tree.Constant) and arg.value is not None:
                    if arg.value is not is_and:
                        return arg
                    continue
                kept.setdefault(_identity(arg), arg)
            return conjunction(kept.values()) if is_and else disjunction(kept.values())
        case tree.Not(arg):
            inner = fold_constants(arg)
            if isinstance(inner, tree.Constant):
                return _negated(inner)
            return tree.Not(inner)
        case tree.Truth(arg, value):
            inner = fold_constants(arg)
            if isinstance(inner, tree.Constant):
                return tree.Constant(inner.value is value)
            return tree.Truth(inner, value)
    return predicate


def _identity(predicate: Predicate) -> object:
    """What is equal for equal conditions, without walking through the commonest of them."""
    match predicate:
        case tree.Compare(op, tree.Column(path), tree.Literal(scalar, zone)):
            return op, path, scalar, zone
    return predicate


def gather_points(predicate: Predicate) -> Predicate:
    """A long OR of ``column = literal`` as one IN."""
    match predicate:
        case tree.And(args):
            return conjunction(gather_points(a) for a in args)
        case tree.Or(args) if len(args) >= _MANY_POINTS:
            return _gathered(args)
    return predicate


def _gathered(args: tuple[Predicate, ...]) -> Predicate:
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
    """Conditions on one column under one AND or OR become a single leaf, by set algebra."""
    match node:
        case AndNode(args) | OrNode(args):
            join = and_leaves if isinstance(node, AndNode) else or_leaves
            leaves: dict[ColumnRef, list[Leaf]] = {}
            rest: list[Node] = []
            for arg in _flat(type(node), (merge_columns(a) for a in args)):
                if isinstance(arg, Leaf):
                    leaves.setdefault(arg.ref, []).append(arg)
                else:
                    rest.append(arg)
            parts = (*(_joined(join, group) for group in leaves.values()), *rest)
            return parts[0] if len(parts) == 1 else type(node)(parts)
        case IsNode(arg, value, negated):
            return truth_test(merge_columns(arg), value, negated=negated)
    return node


def _joined(join: Callable[[Leaf, Leaf], Leaf], leaves: list[Leaf]) -> Leaf:
    """``leaves`` joined in pairs, so that thousands of them cost no more than sorting them."""
    while len(leaves) > 1:
        pairs = [join(*leaves[at : at + 2]) for at in range(0, len(leaves) - 1, 2)]
        leaves = pairs + leaves[len(pairs) * 2 :]
    return leaves[0]


def _flat(kind: type[Node], args: object) -> list[Node]:
    flat: list[Node] = []
    for arg in args:  # type: ignore[attr-defined]
        flat.extend(arg.args if isinstance(arg, kind) else (arg,))  # type: ignore[attr-defined]
    return flat


def and_leaves(a: Leaf, b: Leaf) -> Leaf:
    """``a AND b`` on one column: the law of three bits, value by value."""
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
    """AND and OR with decided arguments shortened."""
    match node:
        case AndNode(args) | OrNode(args):
            is_and = isinstance(node, AndNode)
            kept: list[Node] = []
            for arg in (simplify(a) for a in args):
                if isinstance(arg, ConstantNode) and arg.value is not None:
                    if arg.value is not is_and:
                        return arg
                    continue
                kept.append(arg)
            if not kept:
                return ConstantNode(is_and)
            return kept[0] if len(kept) == 1 else type(node)(tuple(kept))
        case IsNode(arg, value, negated):
            return truth_test(simplify(arg), value, negated=negated)
    return node


PREDICATE_PASSES: tuple[PredicatePass, ...] = (push_not, fold_constants, gather_points)
NODE_PASSES: tuple[NodePass, ...] = (merge_columns, simplify)


# -- compile -----------------------------------------------------------------------------------


def compile_predicate(
    predicate: Predicate,
    schema: pa.Schema,
    *,
    case_sensitive: bool = True,
    predicate_passes: tuple[PredicatePass, ...] = PREDICATE_PASSES,
    node_passes: tuple[NodePass, ...] = NODE_PASSES,
) -> Compiled:
    """``predicate`` bound to ``schema``: what metadata can judge, what is left, and why."""
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
    paths = tuple([binder.column(path).path for path in predicate.columns()])
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
