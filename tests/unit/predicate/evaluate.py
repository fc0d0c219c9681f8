"""A row-by-row evaluator with Spark's semantics, the oracle of the adapter tests."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import operator
import re

import hypothesis.strategies as st
import pyarrow as pa

from skipstone.predicate import tree

NAN, INF = math.nan, math.inf
UTC = dt.UTC


@functools.cache
def table() -> pa.Table:
    """A small table with what is hard about each type, and NULL in every column."""
    day, noon = dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 12, 30, 15, 123456)
    texts = ["a", "ab", "a%b", "a_b", "a\\b", "é%", "", "A\nB", "ſ", "100%", None]
    floats = [1.0, NAN, -0.0, 0.0, INF, -INF, 0.1, 2.5, NAN, None, -7.25]
    decimals = [None if f is None or not math.isfinite(f) else decimal.Decimal(str(f)) for f in floats]
    days = [day + dt.timedelta(n * 100) for n in range(-5, 5)] + [None]
    instants = [noon + dt.timedelta(n * 100) for n in range(-4, 5)] + [None, dt.datetime(2020, 2, 29)]
    return pa.table(
        {
            "i": pa.array([1, 2, 3, 0, -1, 100, 2**31, None, 5, 1, 7]),
            "j": pa.array([1, 3, None, 0, 1, -100, 2**31 - 1, None, 6, 0, 7], pa.int32()),
            "t": pa.array([1, 2, 127, 0, -128, 100, None, 7, 5, 1, 7], pa.int8()),
            "f": pa.array(floats),
            "g": pa.array([1.0, 2.0, 0.0, NAN, NAN, 1.0, None, NAN, NAN, NAN, -7.25]),
            "h": pa.array(floats, pa.float32()),
            "s": pa.array(texts),
            "u": pa.array([*texts[1:], "a"]),
            "b": pa.array([True, False, None] * 3 + [True, False]),
            "c": pa.array([None] * 3 + [True] * 4 + [False] * 4, pa.bool_()),
            "d": pa.array(days),
            "ts": pa.array(instants, pa.timestamp("us")),
            "ms": pa.array(
                [None if v is None else v.replace(microsecond=0) for v in instants], pa.timestamp("ms")
            ),
            "tz": pa.array(instants, pa.timestamp("us", "UTC")),
            "m": pa.array(decimals, pa.decimal128(10, 2)),
            "n": pa.array([None, b"a", b"\xff", b"", b"ab", None, b"a", b"b", b"%", b"_", b"A"]),
            "p": nested(),
        }
    )


def nested() -> pa.StructArray:
    """Structs with NULL inside and outside, written as Parquet gives them: NULL all the way down."""
    words = pa.array([str(n) if n % 3 else None for n in range(10)] + [None])
    inner = pa.StructArray.from_arrays([words], ["w"], mask=words.is_null())
    numbers = pa.array([n if n % 3 else None for n in range(10)] + [None])
    return pa.StructArray.from_arrays([numbers, inner], ["q", "r"], mask=pa.array([False] * 10 + [True]))


def evaluate(predicate: tree.Predicate, data: pa.Table) -> list[bool | None]:
    """The predicate's answer for each row."""
    masks = {id(n): opaque(n, data) for n in predicate.walk() if isinstance(n, tree.Opaque)}
    return [Row(row, number, masks).truth(predicate) for number, row in enumerate(data.to_pylist())]


def opaque(node: tree.Opaque, data: pa.Table) -> list[bool | None]:
    assert node.evaluate is not None, node
    columns = [data.column(arg.path[0]).combine_chunks() for arg in node.args]
    assert all(len(arg.path) == 1 for arg in node.args)
    if columns:
        batch = pa.RecordBatch.from_arrays(columns, [arg.path[0] for arg in node.args])
    else:
        batch = pa.RecordBatch.from_struct_array(pa.array([{}] * len(data), pa.struct([])))
    mask = node.evaluate(batch)
    assert isinstance(mask, pa.BooleanArray)
    assert len(mask) == len(data)
    return mask.to_pylist()


def order(value: object) -> object:
    """A sort key: NaN above every number, strings by their bytes, times in one unit."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (float, decimal.Decimal)):
        number = float(value)
        return (1, 0.0) if math.isnan(number) else (0, number)
    if isinstance(value, int):
        return (0, value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dt.datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def negate(a: bool | None) -> bool | None:
    return None if a is None else not a


COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CALLS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "negative": operator.neg,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "substr": lambda text, start, count: text[start - 1 : start - 1 + count],
    "left": lambda text, count: text[: max(count, 0)],
    "year": lambda when: when.year,
}


class Row:
    def __init__(self, row: dict[str, object], number: int, masks: dict[int, list[bool | None]]) -> None:
        self.row, self.number, self.masks = row, number, masks

    def value(self, expr: tree.Expr) -> object:
        if isinstance(expr, tree.Predicate):
            return self.truth(expr)
        if isinstance(expr, tree.Column):
            value: object = self.row
            for part in expr.path:
                value = None if value is None else value[part]  # type: ignore[index]
            return value
        if isinstance(expr, tree.Literal):
            return expr.scalar.as_py()
        if isinstance(expr, tree.Cast):
            return self.cast(self.value(expr.arg), expr.type)
        assert isinstance(expr, tree.Call), expr
        args = [self.value(arg) for arg in expr.args]
        return None if None in args else CALLS[expr.name](*args)

    def cast(self, value: object, to: pa.DataType) -> object:
        if value is None:
            return None
        if pa.types.is_integer(to):
            return int(value)  # type: ignore[call-overload]
        if pa.types.is_float32(to):
            return pa.scalar(float(value), to).as_py()  # type: ignore[arg-type]
        if pa.types.is_floating(to):
            return float(value)  # type: ignore[arg-type]
        if pa.types.is_date(to):
            return value.date() if isinstance(value, dt.datetime) else value
        assert pa.types.is_decimal(to), to
        return decimal.Decimal(value)  # type: ignore[arg-type]

    def compare(self, op: str, a: object, b: object) -> bool | None:
        if op == "<=>":
            return (a is None) == (b is None) if a is None or b is None else bool(order(a) == order(b))
        if a is None or b is None:
            return None
        return bool(COMPARE[op](order(a), order(b)))

    def truth(self, p: tree.Expr) -> bool | None:
        match p:
            case tree.Constant(value):
                return value
            case tree.BooleanValue(arg):
                return self.value(arg)  # type: ignore[return-value]
            case tree.And(args):
                result: bool | None = True
                for arg in args:
                    result = both(result, self.truth(arg))
                return result
            case tree.Or(args):
                result = True
                for arg in args:
                    result = both(result, negate(self.truth(arg)))
                return negate(result)
            case tree.Not(arg):
                return negate(self.truth(arg))
            case tree.Truth(arg, value):
                return self.truth(arg) is value
            case tree.Compare(op, left, right):
                return self.compare(op, self.value(left), self.value(right))
            case tree.Between(arg, low, high, low_in, high_in):
                x = self.value(arg)
                above = self.compare(">=" if low_in else ">", x, self.value(low))
                return both(above, self.compare("<=" if high_in else "<", x, self.value(high)))
            case tree.IsNull(arg):
                return self.value(arg) is None
            case tree.IsNan(arg):
                x = self.value(arg)
                return None if x is None else isinstance(x, float) and math.isnan(x)
            case tree.IsIn(arg, values):
                x = self.value(arg)
                if x is None:
                    return None if len(values) else False
                if any(v is not None and order(v) == order(x) for v in values.to_pylist()):
                    return True
                return None if values.null_count else False
            case tree.Match(kind, arg, text):
                x = self.value(arg)
                if x is None:
                    return None
                x, text = (v.encode() if isinstance(v, str) else v for v in (x, text))
                return {"prefix": x.startswith, "suffix": x.endswith, "contains": x.__contains__}[kind](text)
            case tree.Like(arg, pattern, escape, ignore_case):
                x = self.value(arg)
                if x is None:
                    return None
                if ignore_case:
                    x, pattern = x.lower(), pattern.lower()  # type: ignore[attr-defined]
                return re.fullmatch(self.like(pattern, escape), x, re.DOTALL) is not None  # type: ignore[call-overload]
        return self.masks[id(p)][self.number]

    def like(self, pattern: str, escape: str | None) -> str:
        out, plain = "", False
        for sign in pattern:
            if plain or sign not in (escape, "%", "_"):
                out, plain = out + re.escape(sign), False
            elif sign == escape:
                plain = True
            else:
                out += ".*" if sign == "%" else "."
        return out


# -- predicates for round trips ----------------------------------------------------------------


def in_utc(when: dt.datetime) -> dt.datetime:
    return when.replace(tzinfo=UTC)


INTS = st.sampled_from([-128, -1, 0, 1, 2, 3, 5, 7, 100, 127, 2**31])
FLOATS = st.sampled_from([NAN, -0.0, 0.0, 0.1, 1.0, 2.5, INF, -INF, -7.25])
TEXTS = st.sampled_from(["", "a", "ab", "a%b", "a_b", "a\\b", "é", "100%", "B", "ſ"])
PATTERNS = st.text("ab%_\\!é1", max_size=5)
DAYS = st.sampled_from([dt.date(2020, 2, 29), dt.date(2019, 5, 5), dt.date(2021, 1, 1)])
TIMES = st.sampled_from(
    [
        dt.datetime(2020, 2, 29, 12, 30, 15, 123456),
        dt.datetime(2020, 2, 29),
        dt.datetime(2020, 2, 29, 12, 30, 15),
    ]
)
INSTANTS = TIMES.map(in_utc)
DECIMALS = st.sampled_from([decimal.Decimal("0.10"), decimal.Decimal("2.50"), decimal.Decimal("-7.25")])
BYTES = st.sampled_from([b"", b"a", b"\xff", b"%"])
FAMILIES = {
    "ij": INTS,
    "fgh": FLOATS,
    "su": TEXTS,
    "d": DAYS,
    "m": DECIMALS,
    "n": BYTES,
}


@st.composite
def leaves(draw: st.DrawFn) -> tree.Predicate:
    """One condition over the table's columns, of any kind the tree has."""
    names, values = draw(st.sampled_from([*FAMILIES.items(), (("ts", "ms"), TIMES), (("tz",), INSTANTS)]))
    x = tree.col(draw(st.sampled_from(names)))
    other = tree.lit(draw(values)) if draw(st.booleans()) else tree.col(draw(st.sampled_from(names)))
    # A long list takes other ways through the libraries than a short one.
    listed = pa.array(draw(st.lists(values, min_size=1, max_size=4)) * draw(st.sampled_from([1, 1, 101])))
    if draw(st.booleans()):
        listed = pa.concat_arrays([listed, pa.nulls(1, listed.type)])
    choices = [
        tree.Compare(draw(st.sampled_from(tree.COMPARE_OPS)), x, other),
        tree.Compare(draw(st.sampled_from(tree.COMPARE_OPS)), other, x),
        tree.Between(
            x, tree.lit(draw(values)), tree.lit(draw(values)), draw(st.booleans()), draw(st.booleans())
        ),
        tree.IsNull(x),
        tree.Compare(draw(st.sampled_from(tree.COMPARE_OPS)), x, tree.Literal(pa.scalar(None, listed.type))),
        tree.Constant(draw(st.sampled_from([True, False, None]))),
        tree.BooleanValue(tree.col(draw(st.sampled_from("bc")))),
        tree.Compare(draw(st.sampled_from(tree.COMPARE_OPS)), tree.col("p", "q"), tree.lit(draw(INTS))),
        tree.IsIn(x, listed),
    ]
    if names in ("ij", "fgh"):
        choices.append(tree.IsNan(x))
    if names == "su":
        kind, text = draw(st.sampled_from(("prefix", "suffix", "contains"))), draw(TEXTS)
        escape = draw(st.sampled_from(["\\", "!", None]))
        pattern = draw(PATTERNS)
        if escape and pattern.endswith(escape):
            pattern += "x"  # a pattern that ends with its escape character is an error
        choices += [tree.Match(kind, x, text), tree.Like(x, pattern, escape, draw(st.booleans()))]
    return draw(st.sampled_from(choices))


def joined(inner: st.SearchStrategy[tree.Predicate]) -> st.SearchStrategy[tree.Predicate]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(tree.And, several),
        st.builds(tree.Or, several),
        st.builds(tree.Not, inner),
        st.builds(tree.Truth, inner, st.sampled_from([True, False, None])),
    )


def predicates() -> st.SearchStrategy[tree.Predicate]:
    """Conditions joined by AND, OR, NOT and IS TRUE."""
    return st.recursive(leaves(), joined, max_leaves=5)
