"""What calls and lists in SQL text mean, by the name Spark gives the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import pyarrow as pa

from skipstone.errors import ParseError
from skipstone.predicate import tree
from skipstone.predicate.sql.types import (
    EXTRACT_FIELDS,
    FOREIGN,
    INSTANT,
    SPARK_ALIASES,
    SPARK_LIKE,
    TRUNC_UNITS,
    fold,
)
from skipstone.predicate.values import value_array

Args = tuple[tree.Expr, ...]


def function(name: str, args: Args, dialect: str, zone: str) -> tree.Expr:
    """``name(args)`` as the dialect means it; an unknown function is a Call all the same."""
    spark_name = _spark_name(name, args, dialect)
    if spark_name is None:
        return tree.Call(f"{dialect}.{name}", args, zone)
    special = _SPECIAL.get(spark_name)
    found = special(args, dialect, zone) if special else None
    return tree.Call(spark_name, args, zone) if found is None else found


def extract(field: str, arg: tree.Expr, dialect: str, zone: str) -> tree.Expr:
    """``EXTRACT(field FROM arg)`` as the function of that name."""
    name = EXTRACT_FIELDS.get(field.lower())
    if name is None and dialect in SPARK_LIKE:
        name = _SPARK_FIELDS.get(field.lower())
    if name is None:
        own = "extract" if dialect in SPARK_LIKE else f"{dialect}.extract"
        return tree.Call(own, (tree.lit(field.lower(), zone=zone), arg), zone)
    return tree.Call(name, (arg,), zone)


def literal_array(literals: Sequence[tree.Literal]) -> pa.Array:
    """The members of an IN list; one type is kept as it is, several kinds of number are widened."""
    scalars = [literal.scalar for literal in literals]
    kinds = {scalar.type for scalar in scalars if scalar.is_valid}
    if len(kinds) == 1:
        return pa.array([scalar if scalar.is_valid else None for scalar in scalars], kinds.pop())
    return value_array(scalar.as_py() for scalar in scalars)


_SPARK_FIELDS = MappingProxyType({"dow": "dayofweek", "dayofweek": "dayofweek", "mon": "month", "yr": "year"})


def _spark_name(name: str, args: Args, dialect: str) -> str | None:
    if dialect in SPARK_LIKE:
        return SPARK_ALIASES.get(name, name)
    if name == "date" and len(args) == 1:
        return name
    known = FOREIGN[dialect].get(name)
    # Dialects disagree on positions and lengths below one.
    if known in ("substr", "left") and not all(_is_positive(arg) for arg in args[1:]):
        return None
    return known


def _is_positive(arg: tree.Expr) -> bool:
    value = _plain(arg)
    return isinstance(value, int) and value > 0


def _plain(arg: tree.Expr) -> object:
    return arg.scalar.as_py() if isinstance(arg, tree.Literal) else None


# -- functions that are nodes of the tree ---------------------------------------------------------


def _isnan(args: Args, dialect: str, _zone: str) -> tree.Expr | None:
    if len(args) != 1:
        return None
    # Spark's isnan(NULL) is FALSE, the node's answer is NULL.
    return tree.Truth(tree.IsNan(args[0]), True) if dialect in SPARK_LIKE else tree.IsNan(args[0])


def _match(kind: tree.MatchKind) -> Callable[[Args, str, str], tree.Expr | None]:
    def build(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
        text = _plain(args[1]) if len(args) == 2 else None
        return tree.Match(kind, args[0], text) if isinstance(text, (str, bytes)) else None

    return build


def _like(ignore_case: bool) -> Callable[[Args, str, str], tree.Expr | None]:
    def build(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
        texts = [_plain(arg) for arg in args[1:]]
        if len(args) not in (2, 3) or not all(isinstance(text, str) for text in texts):
            return None
        pattern, escape = (*map(str, texts), "\\")[:2]
        return tree.Like(args[0], pattern, escape, ignore_case)

    return build


def _is_null(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
    return tree.IsNull(args[0]) if len(args) == 1 else None


def _is_not_null(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
    return tree.Not(tree.IsNull(args[0])) if len(args) == 1 else None


def _date_trunc(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    if len(args) != 2:
        return None
    unit, arg = (
        args if isinstance(args[0], tree.Literal) or not isinstance(args[1], tree.Literal) else args[::-1]
    )
    text = _plain(unit)
    if isinstance(text, str):
        unit = tree.lit(TRUNC_UNITS.get(text.lower(), text.lower()), zone=zone)
    return tree.Call("date_trunc", (unit, arg), zone)


def _date_part(args: Args, dialect: str, zone: str) -> tree.Expr | None:
    field = _plain(args[0]) if len(args) == 2 else None
    return extract(field, args[1], dialect, zone) if isinstance(field, str) else None


def _cast(kind: pa.DataType) -> Callable[[Args, str, str], tree.Expr | None]:
    def build(args: Args, dialect: str, zone: str) -> tree.Expr | None:
        if len(args) != 1:
            return None
        if isinstance(args[0], tree.Literal):
            try:
                folded = fold(args[0].scalar, kind, dialect, zone)
            except ValueError as error:
                raise ParseError(str(error)) from None
            if folded is not None:
                return tree.Literal(folded, zone)
        return tree.Cast(args[0], kind, zone)

    return build


def _unhex(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    text = _plain(args[0]) if len(args) == 1 else None
    try:
        return tree.lit(bytes.fromhex(text), zone=zone) if isinstance(text, str) else None
    except ValueError:
        return None


_SPECIAL: MappingProxyType[str, Callable[[Args, str, str], tree.Expr | None]] = MappingProxyType(
    {
        "bigint": _cast(pa.int64()),
        "binary": _cast(pa.binary()),
        "boolean": _cast(pa.bool_()),
        "contains": _match("contains"),
        "date": _cast(pa.date32()),
        "date_part": _date_part,
        "date_trunc": _date_trunc,
        "datepart": _date_part,
        "double": _cast(pa.float64()),
        "endswith": _match("suffix"),
        "float": _cast(pa.float32()),
        "ilike": _like(ignore_case=True),
        "int": _cast(pa.int32()),
        "isnan": _isnan,
        "isnotnull": _is_not_null,
        "isnull": _is_null,
        "like": _like(ignore_case=False),
        "smallint": _cast(pa.int16()),
        "startswith": _match("prefix"),
        "string": _cast(pa.string()),
        "timestamp": _cast(INSTANT),
        "tinyint": _cast(pa.int8()),
        "to_date": _cast(pa.date32()),
        "unhex": _unhex,
    }
)
