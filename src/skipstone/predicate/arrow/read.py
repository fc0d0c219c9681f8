"""From a pyarrow expression to a predicate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.predicate import tree
from skipstone.predicate.arrow.wire import Node, decode
from skipstone.predicate.foreign import (
    Unknown,
    float32_readings,
    has_zero,
    is_nan,
    is_number,
    literal,
    near,
    neighbours,
    plain,
)

T = TypeVar("T")


def from_arrow(expr: pc.Expression) -> tree.Predicate:
    """A pyarrow expression as a predicate that keeps pyarrow's answer for every row.

    >>> import pyarrow.compute as pc
    >>> from_arrow(pc.field("x") < 5)
    Predicate("x < 5")
    """
    try:
        return _condition(decode(expr))
    except pa.ArrowNotImplementedError:
        # A column by position, or a function of the user's own: it can't be taken apart.
        return tree.Opaque((), None, str(expr))


# -- from pyarrow: conditions ------------------------------------------------------------------


def _condition(node: Node) -> tree.Predicate:
    try:
        if node.name:
            return _handler(_CONDITIONS, node)(node)
        return tree.condition(_value(node))
    except Unknown:
        return _opaque(node)


def _handler(table: dict[str, Callable[[Node], T]], node: Node) -> Callable[[Node], T]:
    if node.name not in table:
        raise Unknown(node.name)
    return table[node.name]


def _opaque(node: Node) -> tree.Predicate:
    roots = dict.fromkeys(n.path[0] for n in node.walk() if n.path)
    expr = node.expression()
    return tree.Opaque(tuple(tree.Column((r,)) for r in roots), _Evaluate(expr), " ".join(str(expr).split()))


@dataclass(frozen=True, slots=True)
class _Evaluate:
    """Computes a pyarrow expression over a batch."""

    expr: pc.Expression

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        from pyarrow import acero

        table = pa.Table.from_batches([batch])
        if not batch.num_columns:
            table = pa.table({"": pa.nulls(batch.num_rows)})
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        project = acero.Declaration("project", acero.ProjectNodeOptions([self.expr], ["mask"]), [source])
        mask = project.to_table(use_threads=False).column("mask").combine_chunks()
        return mask.cast(pa.bool_())


def _join(node: Node) -> tree.Predicate:
    flat: list[tree.Predicate] = []
    stack = [node]
    while stack:
        part = stack.pop()
        if part.name == node.name:
            stack.extend(reversed(part.args))
        else:
            flat.append(_condition(part))
    return (tree.conjunction if node.name == "and_kleene" else tree.disjunction)(flat)


def _compare(op: tree.CompareOp, node: Node) -> tree.Predicate:
    left, right = node.args
    if left.scalar is not None and right.scalar is None:
        left, right, op = right, left, tree.FLIPPED[op]
    x, y = _value(left), _value(right)
    plain_compare = tree.Compare(op, x, y)
    if isinstance(y, tree.Literal):
        if isinstance(x, tree.Cast) and pa.types.is_date(x.type):
            return near(op, x, neighbours(y.scalar), _opaque(node))
        if is_nan(y.scalar):
            return _true_unless_null(x) if op == "<>" else _false_unless_null(x)
        risky = op in (">", ">=") and is_number(y.scalar.type) and _may_be_float(x)
        return tree.And((plain_compare, tree.Not(tree.IsNan(x)))) if risky else plain_compare
    if not (_may_be_float(x) and _may_be_float(y)):
        return plain_compare
    if x.key() == y.key() and op == "<>":
        return tree.IsNan(x)
    both = tree.And((tree.IsNan(x), tree.IsNan(y)))
    if op in ("=", "<>"):
        return tree.And((plain_compare, tree.Not(both))) if op == "=" else tree.Or((plain_compare, both))
    low, high = (x, y) if op in ("<", "<=") else (y, x)
    # NaN as the high end is no answer in IEEE; the comparison of the low end with itself keeps NULL.
    return tree.And((plain_compare, tree.Not(tree.And((tree.IsNan(high), tree.Compare("=", low, low))))))


def _may_be_float(expr: tree.Expr) -> bool:
    return not isinstance(expr, tree.Cast) or pa.types.is_floating(expr.type)


def _true_unless_null(x: tree.Expr) -> tree.Predicate:
    return tree.Or((tree.Not(tree.IsNull(x)), tree.Constant(None)))


def _false_unless_null(x: tree.Expr) -> tree.Predicate:
    return tree.And((tree.IsNull(x), tree.Constant(None)))


def _is_in(node: Node) -> tree.Predicate:
    if node.options is None:
        raise Unknown
    x, found = _value(node.args[0]), plain(node.options["value_set"].values)
    values, readings = found.drop_null(), float32_readings(found.drop_null())
    if pa.types.is_timestamp(values.type):
        days = values.cast(pa.date32()).cast(values.type)
        readings = None if days.equals(values) else pa.concat_arrays([values, days])
    if readings is not None or (pa.types.is_floating(values.type) and has_zero(values)):
        wider = tree.IsIn(x, values if readings is None else readings)
        upper = tree.Or((wider, tree.IsNull(x))) if found.null_count else wider
        return tree.And((upper, _opaque(node)))
    hit = tree.IsIn(x, values)
    match node.option("null_matching_behavior"):
        case 0 if found.null_count:
            return tree.Or((tree.Truth(hit, True), tree.IsNull(x)))
        case 0 | 1:
            return tree.Truth(hit, True)
        case 2:
            return hit
        case _:
            return tree.IsIn(x, found)


def _is_null(node: Node) -> tree.Predicate:
    (arg,) = node.args
    if arg.name in _CONDITIONS:
        return tree.Truth(_condition(arg), None)
    x = _value(arg)
    if not node.option("nan_is_null"):
        return tree.IsNull(x)
    return tree.Or((tree.IsNull(x), tree.Truth(tree.IsNan(x), True)))


def _match(kind: tree.MatchKind, node: Node) -> tree.Predicate:
    return tree.Match(kind, _value(node.args[0]), _pattern(node))


def _like(node: Node) -> tree.Predicate:
    pattern = _pattern(node)
    # pyarrow reads a backslash differently in patterns that are a plain prefix, suffix or substring.
    if "\\" in pattern:
        raise Unknown
    return tree.Like(_value(node.args[0]), pattern)


def _pattern(node: Node) -> str:
    # RE2 folds case by its own table ("ſ" is an "s"), Spark by lower().
    if node.option("ignore_case"):
        raise Unknown
    pattern = node.option("pattern")
    return pattern if isinstance(pattern, str) else pattern.decode()


def _finite(node: Node) -> tree.Predicate:
    x = _value(node.args[0])
    infinite = tree.IsIn(x, pa.array([np.inf, -np.inf]))
    if node.name == "is_inf":
        return infinite
    return tree.Not(tree.Or((infinite, tree.IsNan(x))))


_COMPARES: dict[str, tree.CompareOp] = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MATCHES: dict[str, tree.MatchKind] = {
    "starts_with": "prefix",
    "ends_with": "suffix",
    "match_substring": "contains",
}
_CONDITIONS: dict[str, Callable[[Node], tree.Predicate]] = {
    "and_kleene": _join,
    "or_kleene": _join,
    "and_not_kleene": lambda n: tree.And((_condition(n.args[0]), tree.Not(_condition(n.args[1])))),
    "invert": lambda n: tree.Not(_condition(n.args[0])),
    "is_null": _is_null,
    "is_valid": lambda n: tree.Not(_is_null(n)),
    "true_unless_null": lambda n: _true_unless_null(_value(n.args[0])),
    "is_nan": lambda n: tree.IsNan(_value(n.args[0])),
    "is_finite": _finite,
    "is_inf": _finite,
    "is_in": _is_in,
    "match_like": _like,
    **{name: functools.partial(_compare, op) for name, op in _COMPARES.items()},
    **{name: functools.partial(_match, kind) for name, kind in _MATCHES.items()},
}


# -- from pyarrow: values ----------------------------------------------------------------------


def _value(node: Node) -> tree.Expr:
    if node.path:
        return tree.Column(node.path)
    if node.scalar is not None:
        return literal(node.scalar)
    return _handler(_VALUES, node)(node)


def _struct_field(node: Node) -> tree.Expr:
    base, path = _value(node.args[0]), node.option("field_ref")
    # A dot path; brackets hold positions, a backslash escapes.
    if not isinstance(base, tree.Column) or not path.startswith(".") or set(path) & set("[\\"):
        raise Unknown
    return tree.Column((*base.path, *path[1:].split(".")))


def _cast(node: Node) -> tree.Expr:
    if node.options is None or any(v is True for v in node.options.as_py().values()):
        raise Unknown
    to = node.options["to_type"].type
    # From a date or a timestamp pyarrow counts days or ticks; Spark refuses, or counts seconds.
    if to in (pa.int32(), pa.int64()) or not (is_number(to) or pa.types.is_date32(to)):
        raise Unknown
    return tree.Cast(_value(node.args[0]), to)


def _slice(node: Node) -> tree.Expr:
    start, stop, step = (node.option(name) for name in ("start", "stop", "step"))
    if not (0 <= start <= stop < 2**31 and step == 1):
        raise Unknown
    return tree.Call("substr", (_value(node.args[0]), tree.lit(start + 1), tree.lit(stop - start)))


def _call(name: str, node: Node) -> tree.Expr:
    return tree.Call(name, tuple(_value(arg) for arg in node.args))


_CALLS = {
    "add_checked": "+",
    "subtract_checked": "-",
    "multiply_checked": "*",
    "negate_checked": "negative",
    "utf8_lower": "lower",
    "utf8_upper": "upper",
    "utf8_length": "length",
}
_VALUES: dict[str, Callable[[Node], tree.Expr]] = {
    "struct_field": _struct_field,
    "cast": _cast,
    "utf8_slice_codeunits": _slice,
    **{name: functools.partial(_call, call) for name, call in _CALLS.items()},
}
