"""Parses aggregates in SQL: ``count(*), sum(amount) as total, quantile(x, array(0.5, 0.99))``."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from skipstone.aggregate import functions as sk
from skipstone.aggregate.functions import Aggregate
from skipstone.errors import ParseError, did_you_mean
from skipstone.predicate import tree
from skipstone.predicate.sql.read import SqlReader
from skipstone.predicate.sql.types import check_dialect, select_list, zone_info
from skipstone.scan.projection import split_columns


@tree.refuse_deep
def read_functions(text: str, dialect: str = "spark", tz: str = "UTC") -> list[Aggregate]:
    """Parse a SELECT list of aggregate functions."""
    name = check_dialect(dialect)
    zone_info(tz)
    if text.split(maxsplit=1)[:1] in (["select"], ["SELECT"]):
        hint = "write only the expressions between SELECT and FROM"
        raise ParseError("SELECT is not allowed before the list of functions", hint=hint)
    terms = select_list(text, name)
    if not terms:
        raise ParseError("no aggregate functions", hint=f"available: {FORMS}")
    return [_aggregate(*pair, SqlReader(name, tz)) for pair in _as_written(terms, text, name)]


@tree.refuse_deep
def read_expression(text: str, dialect: str = "spark", tz: str = "UTC") -> tree.Expr | None:
    """Parse an expression of columns; None for a name, or a name with an alias."""
    name = check_dialect(dialect)
    zone_info(tz)
    terms = select_list(text, name)
    if len(terms) != 1:
        raise ParseError(f"{_shorten(text)!r} is not one expression", hint="use a list of expressions")
    value = None if isinstance(terms[0], exp.Alias) else _expression(terms[0], SqlReader(name, tz))
    return None if isinstance(value, tree.Column) else value


@tree.refuse_deep
def read_keys(text: str, dialect: str = "spark", tz: str = "UTC") -> dict[str, str | tree.Expr]:
    """Parse a GROUP BY list to columns and expressions by name; without an alias the name is as written."""
    name = check_dialect(dialect)
    zone_info(tz)
    keys: dict[str, str | tree.Expr] = {}
    for term, written in _as_written(select_list(text, name), text, name):
        value = _expression(term.unalias(), SqlReader(name, tz))
        column = ".".join(value.path) if isinstance(value, tree.Column) else value
        key = term.alias or (column if isinstance(column, str) else " ".join(written.split()))
        if key in keys:
            raise ParseError(f"two keys are named {key!r}", hint="rename one with AS")
        keys[key] = column
    return keys


def _as_written(terms: Sequence[exp.Expr], text: str, dialect: str) -> Iterator[tuple[exp.Expr, str]]:
    """The terms of a list with their text."""
    texts = split_columns(text)
    if len(texts) != len(terms):  # commas in comments
        texts = [term.sql(dialect) for term in terms]
    return zip(terms, texts, strict=True)


def _expression(node: exp.Expr, to: SqlReader) -> tree.Expr:
    try:
        return to.value(node)
    except ParseError as error:
        message = error.message.replace("a condition on rows", "an expression of columns")
        hint = "write columns, literals, operators and functions of rows"
        raise ParseError(message, hint=error.hint if message == error.message else hint) from None


def _aggregate(term: exp.Expr, text: str, to: SqlReader) -> Aggregate:
    alias = term.alias if isinstance(term, exp.Alias) else None
    node = term.this if isinstance(term, exp.Alias) else term
    condition = None
    if isinstance(node, exp.Filter):
        condition, node = to.condition(node.expression.this), node.this
    sql = _shorten(node.sql(to.dialect))
    if isinstance(node, exp.Window):
        raise ParseError(f"{sql}: OVER is not supported", hint="use group_by=")
    if not isinstance(node, exp.Anonymous):
        calls = [call for call in node.find_all(exp.Anonymous) if call.name.lower() in _FUNCTIONS]
        hint = "ask for each function, and combine the answers" if calls else f"available: {FORMS}"
        raise ParseError(f"{sql!r} is not a function", hint=hint)
    form = _FUNCTIONS.get(node.name.lower())
    if form is None:
        hint = did_you_mean(node.name, _FUNCTIONS, f"available: {FORMS}")
        raise ParseError(f"unknown function {node.name!r}", hint=hint)
    aggregate = form.make(_Call(node.name.lower(), node.expressions, form.text, to, condition))
    if alias is None and any(isinstance(column, tree.Expr) for column in aggregate.columns):
        # Functions of expressions are named as written.
        alias = " ".join(text.split())
    return aggregate.alias(alias) if alias else aggregate


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


@dataclass(frozen=True, slots=True)
class _Call:
    """A function call with typed access to its arguments."""

    name: str
    args: Sequence[exp.Expr]
    form: str
    """The expected syntax."""
    to: SqlReader
    condition: tree.Predicate | None = None
    """The condition of FILTER (WHERE ...)."""

    def expect(self, number: int) -> None:
        """Raise for another number of arguments."""
        if len(self.args) != number:
            count = {0: "no arguments", 1: "one argument"}.get(len(self.args), f"{len(self.args)} arguments")
            raise self.wrong(f"got {count}")

    def wrong(self, what: str) -> ParseError:
        """Error for invalid arguments."""
        return ParseError(f"{self.name}() {what}", hint=f"write {self.form}")

    def column(self, index: int) -> str | tree.Expr:
        """Column name or expression in argument ``index``."""
        return self.value(self.args[index])

    def value(self, node: exp.Expr) -> str | tree.Expr:
        """Column name or expression."""
        if isinstance(node, exp.Distinct):
            message = f"{self.name}(distinct ...) is not supported"
            raise ParseError(message, hint="use DISTINCT in count(distinct x)")
        if isinstance(node, exp.Star):
            raise self.wrong("needs a column, got *")
        value = _expression(node, self.to)
        if not value.columns():
            raise self.wrong(f"needs a column, got {_shorten(node.sql(self.to.dialect))}")
        if self.condition is not None:
            return self.where(self.condition, value)
        return ".".join(value.path) if isinstance(value, tree.Column) else value

    def where(self, condition: tree.Predicate, value: tree.Expr) -> tree.Expr:
        """The value where the condition is TRUE, else NULL, which functions ignore."""
        return self.to.call("if", condition, value, self.to.literal(pa.scalar(None)))

    def constant(self, node: exp.Expr) -> Any:
        """Value of a literal."""
        value = self.to.value(node)
        if not isinstance(value, tree.Literal):
            raise self.wrong(f"needs a value, got {_shorten(node.sql(self.to.dialect))}")
        return value.scalar.as_py()

    def values(self, index: int) -> Any:
        """One value, or a list for ``array(...)`` or brackets."""
        node = self.args[index]
        is_list = isinstance(node, exp.Array) or (
            isinstance(node, exp.Anonymous) and node.name.lower() == "array"
        )
        return [self.constant(item) for item in node.expressions] if is_list else self.constant(node)


# -- functions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    """Syntax of a function, and how to make its aggregate."""

    text: str
    make: Callable[[_Call], Aggregate]


def _count(call: _Call) -> Aggregate:
    if not call.args or (len(call.args) == 1 and isinstance(call.args[0], exp.Star | exp.Literal)):
        return sk.count() if call.condition is None else _count_where(call, call.condition)
    call.expect(1)
    node = call.args[0]
    if isinstance(node, exp.Distinct):
        if not node.expressions:
            raise call.wrong("got DISTINCT without a column")
        return sk.count_distinct(*(call.value(each) for each in node.expressions))
    return sk.count(call.value(node))


def _count_if(call: _Call) -> Aggregate:
    call.expect(1)
    condition = call.to.condition(call.args[0])
    return _count_where(call, condition if call.condition is None else condition & call.condition)


def _count_where(call: _Call, condition: tree.Predicate) -> Aggregate:
    return sk.count(call.where(condition, call.to.literal(pa.scalar(1))))


def _plain(make: Callable[[str | tree.Expr], Aggregate], call: _Call) -> Aggregate:
    call.expect(1)
    return make(call.column(0))


def _quantile(call: _Call, *, exact: bool) -> Aggregate:
    call.expect(2)
    ranks = call.values(1)
    numbers = [float(rank) if _is_number(rank) else rank for rank in _listed(ranks)]
    if not numbers or not all(isinstance(rank, float) and 0 <= rank <= 1 for rank in numbers):
        raise call.wrong("needs ranks from 0 to 1")
    return sk.quantile(call.column(0), numbers if isinstance(ranks, list) else numbers[0], exact=exact)


def _median(call: _Call) -> Aggregate:
    call.expect(1)
    return sk.quantile(call.column(0), 0.5)


def _histogram(call: _Call) -> Aggregate:
    call.expect(2)
    return sk.histogram(call.column(0), call.values(1))


def _pick(make: Callable[..., Aggregate], call: _Call) -> Aggregate:
    call.expect(2)
    return make(call.column(0), by=call.column(1))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)


def _of(name: str, make: Callable[..., Aggregate], **options: Any) -> _Form:
    return _Form(f"{name}(x)", partial(_plain, partial(make, **options)))


_DOCUMENTED: dict[str, _Form] = {
    "count": _Form("count(*) or count(x) or count(distinct x)", _count),
    "sum": _of("sum", sk.sum),
    "min": _of("min", sk.min),
    "max": _of("max", sk.max),
    "avg": _of("avg", sk.avg),
    "var": _of("var", sk.var),
    "var_pop": _of("var_pop", sk.var, ddof=0),
    "stddev": _of("stddev", sk.stddev),
    "stddev_pop": _of("stddev_pop", sk.stddev, ddof=0),
    "approx_distinct": _of("approx_distinct", sk.approx_distinct),
    "median": _Form("median(x)", _median),
    "quantile": _Form("quantile(x, 0.5) or quantile(x, array(0.5, 0.9))", partial(_quantile, exact=True)),
    "approx_quantile": _Form("approx_quantile(x, 0.5)", partial(_quantile, exact=False)),
    "histogram": _Form("histogram(x, 10) or histogram(x, array(0, 10, 20))", _histogram),
    "first": _Form("first(x, ts)", partial(_pick, sk.first)),
    "last": _Form("last(x, ts)", partial(_pick, sk.last)),
    "count_if": _Form("count_if(x > 0)", _count_if),
}
_ALIASES = {
    "mean": "avg",
    "variance": "var",
    "var_samp": "var",
    "std": "stddev",
    "stddev_samp": "stddev",
    "approx_count_distinct": "approx_distinct",
    "percentile": "quantile",
    "quantile_cont": "quantile",
    "approx_percentile": "approx_quantile",
    "percentile_approx": "approx_quantile",
    "countif": "count_if",
    "min_by": "first",
    "arg_min": "first",
    "max_by": "last",
    "arg_max": "last",
}
_FUNCTIONS = {**_DOCUMENTED, **{other: _DOCUMENTED[name] for other, name in _ALIASES.items()}}
FORMS = ", ".join(form.text.partition(" or ")[0] for form in _DOCUMENTED.values())
"""Syntax of all functions."""
