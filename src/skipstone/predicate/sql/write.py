"""A Predicate as SQL text, through sqlglot's syntax tree so that quoting follows the dialect.

The text keeps Spark's meaning in the target engine, and read back it is the same tree, except:

- an exclusive BETWEEN comes back as two comparisons, an empty IN list as FALSE, a LIKE without an
  escape character in Spark or Hive with one;
- in Spark and Hive a bare ``IsNan`` (NULL for NULL) is ``x = NaN``, because their isnan is FALSE for NULL;
- where a dialect has no such function, startswith, endswith and contains come back as LIKE, ILIKE as
  LIKE of lower-cased text;
- a lenient cast in Hive as a plain one, whose failures are NULL there anyway;
- unusual Arrow types of literals (large strings, unsigned, s/ms/ns timestamps) as the usual ones.

A cast, a date function, or a text meeting a timestamp takes the time zone of the engine's session, as
in Spark: run the text in a session whose zone is the predicate's. Trino and Presto compare NaN as IEEE does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MappingProxyType
from typing import cast

import pyarrow as pa
from sqlglot import exp

from skipstone.predicate import tree
from skipstone.predicate.sql.literals import Writer, literal, raw_number
from skipstone.predicate.sql.types import FOREIGN, known_dialect


def to_sql(predicate: tree.Predicate, dialect: str = "spark") -> str:
    """``predicate`` as SQL text of the dialect, or an error naming the part it has no words for."""
    name = known_dialect(dialect)
    return cast("str", _write(predicate, Writer(name)).sql(name, normalize_functions=False))


_ATOMS = (
    exp.Column,
    exp.Dot,
    exp.Literal,
    exp.Var,
    exp.Cast,
    exp.Anonymous,
    exp.Boolean,
    exp.Null,
    exp.HexString,
)


def _inner(node: tree.Expr, to: Writer) -> exp.Expr:
    """The node as an operand: in parentheses unless it is one word."""
    built = _write(node, to)
    return built if isinstance(built, _ATOMS) else exp.Paren(this=built)


@functools.singledispatch
def _write(node: tree.Expr, to: Writer) -> exp.Expr:
    raise to.refuse(node)


# -- values ------------------------------------------------------------------------------------


@_write.register
def _(node: tree.Column, _to: Writer) -> exp.Expr:
    names = [exp.to_identifier(part, quoted=True) for part in node.path]
    return exp.Column(this=names[0]) if len(names) == 1 else exp.Dot.build(names)


@_write.register
def _(node: tree.Literal, to: Writer) -> exp.Expr:
    return literal(node, to)


@_write.register
def _(node: tree.Cast, to: Writer) -> exp.Expr:
    arg = _write(node.arg, to)
    if to.dialect == "duckdb" and pa.types.is_integer(node.type):
        arg = exp.Anonymous(this="trunc", expressions=[arg])  # DuckDB rounds, Spark cuts
    return to.cast(arg, node.type, node, lenient=node.lenient)


_OPERATORS: MappingProxyType[str, type[exp.Binary]] = MappingProxyType(
    {"+": exp.Add, "-": exp.Sub, "*": exp.Mul, "/": exp.Div, "%": exp.Mod}
)


@_write.register
def _(node: tree.Call, to: Writer) -> exp.Expr:
    own, _, bare = node.name.rpartition(".")
    if (own == to.dialect and bare == "/") or (node.name in _OPERATORS and len(node.args) == 2):
        if node.name == "/" and to.dialect in ("trino", "presto"):
            raise to.refuse(node, "integers divide to an integer there")
        return _OPERATORS[bare or node.name](
            this=_inner(node.args[0], to), expression=_inner(node.args[1], to)
        )
    special = _SPECIAL.get(node.name)
    if special is not None:
        return special(node, to)
    name = bare if own == to.dialect else _function_name(node, to)
    return exp.Anonymous(this=name, expressions=[_write(arg, to) for arg in node.args])


def _function_name(node: tree.Call, to: Writer) -> str:
    if to.spark_like:
        if "." in node.name:
            raise to.refuse(node)
        return node.name
    name = _TO_FOREIGN[to.dialect].get(node.name)
    low = any(_below_one(arg) for arg in node.args[1:]) if node.name in ("substr", "left") else False
    if name is None or low:
        raise to.refuse(node, "no function known to mean the same")
    return name


_TO_FOREIGN = MappingProxyType(
    {dialect: {spark: own for own, spark in reversed(names.items())} for dialect, names in FOREIGN.items()}
)


def _below_one(arg: tree.Expr) -> bool:
    value = arg.scalar.as_py() if isinstance(arg, tree.Literal) else None
    return not isinstance(value, int) or value < 1


def _negative(node: tree.Call, to: Writer) -> exp.Expr:
    return exp.Neg(this=exp.Paren(this=_write(node.args[0], to)))


def _concat(node: tree.Call, to: Writer) -> exp.Expr:
    # DuckDB's concat() skips NULLs, || does not.
    return functools.reduce(
        lambda left, right: exp.DPipe(this=left, expression=right), (_inner(arg, to) for arg in node.args)
    )


def _if(node: tree.Call, to: Writer) -> exp.Expr:
    when, then, otherwise = (_write(arg, to) for arg in node.args)
    return exp.Case(ifs=[exp.If(this=when, true=then)], default=otherwise)


def _interval(node: tree.Call, to: Writer) -> exp.Expr:
    amount, unit = (cast("tree.Literal", arg).scalar.as_py() for arg in node.args)
    return exp.Interval(this=to.string(str(amount)), unit=exp.Var(this=unit) if unit else None)


def _getitem(node: tree.Call, to: Writer) -> exp.Expr:
    if not to.spark_like:
        raise to.refuse(node)
    return exp.Bracket(this=_inner(node.args[0], to), expressions=[_write(arg, to) for arg in node.args[1:]])


def _getfield(node: tree.Call, to: Writer) -> exp.Expr:
    name = cast("tree.Literal", node.args[1]).scalar.as_py()
    return exp.Dot(this=_inner(node.args[0], to), expression=exp.to_identifier(name, quoted=True))


def _lambda(node: tree.Call, to: Writer) -> exp.Expr:
    if not to.spark_like:
        raise to.refuse(node)
    return exp.Var(this=cast("tree.Literal", node.args[0]).scalar.as_py())


_SPECIAL: MappingProxyType[str, Callable[[tree.Call, Writer], exp.Expr]] = MappingProxyType(
    {
        "concat": _concat,
        "getfield": _getfield,
        "getitem": _getitem,
        "if": _if,
        "interval": _interval,
        "lambda": _lambda,
        "negative": _negative,
    }
)


# -- conditions --------------------------------------------------------------------------------

_COMPARISONS: MappingProxyType[str, type[exp.Binary]] = MappingProxyType(
    {
        "=": exp.EQ,
        "<>": exp.NEQ,
        "<": exp.LT,
        "<=": exp.LTE,
        ">": exp.GT,
        ">=": exp.GTE,
        "<=>": exp.NullSafeEQ,
    }
)


@_write.register
def _(node: tree.Constant, to: Writer) -> exp.Expr:
    return to.cast(exp.Null(), pa.bool_(), node) if node.value is None else exp.Boolean(this=node.value)


@_write.register
def _(node: tree.Holds, to: Writer) -> exp.Expr:
    return _write(node.arg, to)


@_write.register
def _(node: tree.Compare, to: Writer) -> exp.Expr:
    return _COMPARISONS[node.op](this=_inner(node.left, to), expression=_inner(node.right, to))


@_write.register
def _(node: tree.Between, to: Writer) -> exp.Expr:
    arg, low, high = (_inner(part, to) for part in (node.arg, node.low, node.high))
    if node.low_inclusive and node.high_inclusive:
        return exp.Between(this=arg, low=low, high=high)
    lower = (exp.GTE if node.low_inclusive else exp.GT)(this=arg, expression=low)
    upper = (exp.LTE if node.high_inclusive else exp.LT)(this=arg.copy(), expression=high)
    return exp.And(this=lower, expression=upper)


@_write.register
def _(node: tree.IsIn, to: Writer) -> exp.Expr:
    if len(node.values) == 0:
        return exp.Boolean(this=False)
    kind = node.values.type
    if kind == pa.int64():  # a million of them as one node, not one each
        words = ", ".join("NULL" if value is None else str(value) for value in node.values.to_pylist())
        return exp.In(this=_inner(node.arg, to), expressions=[raw_number(words)])
    plain = pa.types.is_decimal(kind) and pa.array(node.values.to_pylist()).type == kind
    return exp.In(
        this=_inner(node.arg, to), expressions=[_item(v, node.zone, plain, to) for v in node.values]
    )


def _item(scalar: pa.Scalar, zone: str, plain: bool, to: Writer) -> exp.Expr:
    if not scalar.is_valid:
        return exp.Null()
    return raw_number(f"{scalar.as_py():f}") if plain else literal(tree.Literal(scalar, zone), to)


@_write.register
def _(node: tree.IsNull, to: Writer) -> exp.Expr:
    return exp.Is(this=_inner(node.arg, to), expression=exp.Null())


@_write.register
def _(node: tree.IsNan, to: Writer) -> exp.Expr:
    if to.spark_like:
        nan = to.cast(to.string("NaN"), pa.float64(), node)
        return exp.EQ(this=_inner(node.arg, to), expression=nan)
    return exp.Anonymous(this=_TO_FOREIGN[to.dialect]["isnan"], expressions=[_write(node.arg, to)])


@_write.register
def _(node: tree.Match, to: Writer) -> exp.Expr:
    spark_name = {"prefix": "startswith", "suffix": "endswith", "contains": "contains"}[node.kind]
    name = spark_name if to.dialect == "spark" else _TO_FOREIGN.get(to.dialect, {}).get(spark_name)
    if isinstance(node.text, bytes) and to.dialect != "spark":
        raise to.refuse(node, "no such function of binary values")
    if name is not None:
        text = literal(tree.Literal(pa.scalar(node.text)), to)
        return exp.Anonymous(this=name, expressions=[_write(node.arg, to), text])
    escaped = "".join(f"\\{c}" if c in "%_\\" else c for c in cast("str", node.text))
    pattern = f"{'' if node.kind == 'prefix' else '%'}{escaped}{'' if node.kind == 'suffix' else '%'}"
    return _write(tree.Like(node.arg, pattern, "\\"), to)


@_write.register
def _(node: tree.Like, to: Writer) -> exp.Expr:
    pattern, escape = node.pattern, node.escape
    if to.spark_like and escape is None:
        pattern, escape = pattern.replace("\\", "\\\\"), "\\"
    arg, text = _inner(node.arg, to), to.string(pattern)
    if node.ignore_case and to.dialect not in ("spark", "duckdb"):
        if escape and escape.lower() != escape:
            raise to.refuse(node, "no ILIKE there, and LOWER would change the escape character")
        arg, text = (exp.Anonymous(this="lower", expressions=[part]) for part in (arg, text))
        like: exp.Expr = exp.Like(this=arg, expression=text)
    else:
        like = (exp.ILike if node.ignore_case else exp.Like)(this=arg, expression=text)
    default = "\\" if to.spark_like else None
    return like if escape == default else exp.Escape(this=like, expression=to.string(cast("str", escape)))


@_write.register
def _(node: tree.Truth, to: Writer) -> exp.Expr:
    if to.dialect == "spark" and isinstance(node.arg, tree.IsNan) and node.value is True:
        return exp.Anonymous(this="isnan", expressions=[_write(node.arg.arg, to)])
    if node.value is None:
        return exp.Is(this=_inner(node.arg, to), expression=exp.Null())
    form = exp.NullSafeEQ if to.dialect in ("trino", "presto") else exp.Is
    return form(this=_inner(node.arg, to), expression=exp.Boolean(this=node.value))


@_write.register
def _(node: tree.And, to: Writer) -> exp.Expr:
    return _chain(exp.And, node, to)


@_write.register
def _(node: tree.Or, to: Writer) -> exp.Expr:
    return _chain(exp.Or, node, to)


def _chain(kind: type[exp.Connector], node: tree.And | tree.Or, to: Writer) -> exp.Expr:
    built = (_write(arg, to) for arg in node.args)
    parts = (exp.Paren(this=part) if isinstance(part, exp.Connector) else part for part in built)
    return functools.reduce(lambda left, right: kind(this=left, expression=right), parts)


@_write.register
def _(node: tree.Not, to: Writer) -> exp.Expr:
    return exp.Not(this=_inner(node.arg, to))
